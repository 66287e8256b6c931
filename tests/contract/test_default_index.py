from urllib.parse import urlsplit

from raysm.contract.default_index import default_index


def test_pip_says_which_index_it_asks_and_where_its_files_lie():
    index = default_index()
    parts = urlsplit(index.url)
    assert (parts.scheme, parts.path) == ("https", "/simple")
    assert parts.hostname == index.hosts[0]
    assert len(index.hosts) == 2

"""The file of a grid in parts: any two contents, and what is sent of the second makes it of the first."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.errors import InvalidConfig
from raysm.grid.shared.pages import changed_pages, digest_of, join_parts, page_bytes, page_digests, part_of

SIZE = 512


def database(*pages):
    """Return the content of a database of these pages, whose first one says how large a page is."""
    head = bytearray(pages[0] * SIZE)
    head[16:18] = SIZE.to_bytes(2, "big")
    return bytes(head) + b"".join(page * SIZE for page in pages[1:])


PAGES = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=6)


@given(st.lists(PAGES, min_size=1, max_size=5))
def test_the_whole_and_what_changed_since_make_the_last_content(versions):
    contents = [database(*pages) for pages in versions]
    parts, before = [], []
    for content in contents:
        digests = page_digests(content)
        parts.append(part_of(content, changed_pages(before, digests)))
        before = digests
    assert join_parts(parts) == contents[-1]
    assert digest_of(page_digests(join_parts(parts))) == digest_of(before)


def test_what_did_not_change_is_not_sent():
    before, after = page_digests(database(b"a", b"b", b"c")), page_digests(database(b"a", b"x", b"c", b"d"))
    assert changed_pages(before, after) == [1, 3]


def test_the_size_of_a_page_is_that_of_the_database(tmp_path):
    for size in (4096, 65_536):
        with sqlite3.connect(tmp_path / f"{size}.db") as connection:
            connection.execute(f"PRAGMA page_size = {size}")
            connection.execute("CREATE TABLE t (a)")
        connection.close()
        assert page_bytes((tmp_path / f"{size}.db").read_bytes()) == size


@pytest.mark.parametrize("part", [b"", b"no zlib", part_of(database(b"a"), [0])[:-9]])
def test_a_torn_part_is_refused(part):
    with pytest.raises(InvalidConfig, match="a part of the grid's copy cannot be read"):
        join_parts([part])

"""What opens an address is not shown."""

import pytest

from raysm.contract.credentials import without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://token@pypi.example/simple", "https://***@pypi.example/simple"),
        ("--extra-index-url https://me:p@ss@pypi.example/simple", "--extra-index-url https://***@pypi.example/simple"),
        ("package @ git+ssh://git@github.com/me/it.git@main", "package @ git+ssh://***@github.com/me/it.git@main"),
        ("https://a@one/x https://b@two/y", "https://***@one/x https://***@two/y"),
        ("plain @ https://pypi.example/plain@1.0.tar.gz", "plain @ https://pypi.example/plain@1.0.tar.gz"),
        ("numpy>=2", "numpy>=2"),
    ],
)
def test_what_stands_before_a_host_is_starred_and_nothing_else(text, shown):
    assert without_credentials(text) == shown

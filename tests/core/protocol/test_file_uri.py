"""Paths as URIs, and back."""

from pathlib import Path

import pytest

from raysm.core.protocol.file_uri import path_of, uri_of
from tests.support.odd_names import ONLY_FILES


@pytest.mark.parametrize("name", ONLY_FILES)
def test_a_path_of_any_name_is_the_same_after_it_was_a_uri(name):
    path = Path("/data") / name
    assert path_of(uri_of(path)) == path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///data/a b?c#d", "/data/a b?c#d"),
        ("file:///data/a%20b", "/data/a b"),
        ("file://localhost/data/100%", "/data/100%"),
        ("file:///data/é", "/data/é"),
    ],
)
def test_a_uri_that_a_user_wrote_is_read_with_or_without_quoting(uri, path):
    assert path_of(uri) == Path(path)

"""Manifests of inputs are read as they are written, and what is none is refused by its address."""

import json

import pytest

from raysm.contract.input_manifest import InputManifest
from raysm.errors import InvalidInput


def test_what_was_written_is_read():
    manifest = InputManifest(prefix="s3://b/images/", names=["1.png", "a/ü 2.png"])
    assert json.loads(manifest.content()) == [{"prefix": "s3://b/images/"}, "1.png", "a/ü 2.png"]
    assert InputManifest.of(manifest.content(), "s3://b/m") == manifest


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG", b"[]", b"{}", b'["a"]', b'[{"prefix": "s3://b/"}]', b'[{"prefix": "s3://b/"}, 1]']
)
def test_what_is_no_manifest_is_refused_with_how_to_write_one(content):
    with pytest.raises(
        InvalidInput, match=r's3://b/m is not a manifest. Write a JSON list with at least one name, \[\{"prefix"'
    ):
        InputManifest.of(content, "s3://b/m")

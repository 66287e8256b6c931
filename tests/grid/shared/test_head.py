"""The head of a shared grid: what is written is read, and what is none is refused."""

import dataclasses
import json

import pytest

from raysm.errors import InvalidConfig
from raysm.grid.shared.lease import Head, read_head

HEAD = Head(run="abc234", owner="[host]", holder="x", fence=3, is_held=True, serial=9, number=2, copy="copies/2")


def test_what_is_written_is_read():
    assert read_head(HEAD.content()) == HEAD


def test_two_writes_are_never_alike():
    # Of one content S3 makes one ETag: the second would not be told from the first.
    assert HEAD.content() != dataclasses.replace(HEAD, serial=10).content()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format": 2}', HEAD.content().replace(b'"fence"', b'"fences"')]
)
def test_what_is_no_head_is_refused(content):
    with pytest.raises(InvalidConfig, match="grid's copy"):
        read_head(content)


def test_another_format_is_not_touched():
    with pytest.raises(InvalidConfig, match="written by another raysm"):
        read_head(json.dumps(json.loads(HEAD.content()) | {"format": 3}).encode())

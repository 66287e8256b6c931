"""Large files on the head's disk."""

import errno
import hashlib
import os

import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.workloads.disk import PIECES, Stream, full_disk_is_no_room, write_at


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_used_up_quota_are_no_room(tmp_path, number):
    message = f"disk of {tmp_path} became full while rows.npy was written"
    with pytest.raises(NoRoom, match=message), full_disk_is_no_room(tmp_path / "rows.npy"):
        raise OSError(number, os.strerror(number))


HEAD = b"head"
PIECE = 10_000


def content_of(pieces):
    return np.random.default_rng(0).bytes(pieces * PIECE)


def opened(path, content):
    return Stream(path, HEAD, len(HEAD) + len(content))


def put(stream, content, at):
    stream.put(len(HEAD) + at * PIECE, memoryview(content)[at * PIECE : (at + 1) * PIECE])


@pytest.mark.parametrize("seed", [0, 1])
def test_pieces_in_any_order_make_the_whole_file_and_its_digest(tmp_path, seed):
    content = content_of(30)
    stream = opened(tmp_path / "x", content)
    for at in np.random.default_rng(seed).permutation(30).tolist():
        put(stream, content, at)
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()
    assert (tmp_path / "x").read_bytes() == HEAD + content


def write_until_full(descriptor, position, data):
    if position:
        raise OSError(28, "No space left on device")
    write_at(descriptor, position, data)


def test_a_disk_that_becomes_full_is_said_and_nothing_waits_for_it(tmp_path):
    content = content_of(4 * PIECES)
    stream = Stream(tmp_path / "x", HEAD, len(HEAD) + len(content), write_until_full)

    def fill():
        for at in range(4 * PIECES):
            put(stream, content, at)
        stream.finish()

    with pytest.raises(NoRoom, match="became full while x was written"):
        fill()
    stream.close()

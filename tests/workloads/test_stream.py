import hashlib
import threading

import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.workloads.disk import write_at
from raysm.workloads.stream import EARLY, PIECES, Stream

HEAD = b"head"
PIECE = 10_000
DEADLINE_S = 90


def content_of(pieces):
    return np.random.default_rng(0).bytes(pieces * PIECE)


def opened(path, content):
    return Stream(path, HEAD, len(HEAD) + len(content))


def put(stream, content, at):
    stream.put(len(HEAD) + at * PIECE, memoryview(content)[at * PIECE : (at + 1) * PIECE])


@pytest.mark.parametrize("seed", range(4))
def test_pieces_in_any_order_make_the_whole_file_and_its_digest(tmp_path, seed):
    content = content_of(30)
    stream = opened(tmp_path / "x", content)
    for at in np.random.default_rng(seed).permutation(30).tolist():
        put(stream, content, at)
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()
    assert (tmp_path / "x").read_bytes() == HEAD + content


def test_a_first_piece_that_comes_last_does_not_keep_the_others_in_memory(tmp_path):
    content = content_of(PIECES * 4)
    stream = opened(tmp_path / "x", content)
    given = [np.frombuffer(content, np.uint8, PIECE, at * PIECE).copy() for at in range(1, PIECES * 4)]
    for at, piece in enumerate(given, start=1):
        stream.put(len(HEAD) + at * PIECE, piece.data)
    assert sum(one.data is not None for one in stream._written.values()) <= EARLY + PIECES
    put(stream, content, 0)
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()


def test_whoever_puts_more_than_is_written_waits(tmp_path):
    content, released, done = content_of(3 * PIECES), threading.Event(), []

    def write_once_released(descriptor, position, data):
        assert position == 0 or released.wait(DEADLINE_S)
        write_at(descriptor, position, data)

    stream = Stream(tmp_path / "x", HEAD, len(HEAD) + len(content), write_once_released)

    def fill():
        for at in range(3 * PIECES):
            put(stream, content, at)
            done.append(at)

    filling = threading.Thread(target=fill)
    filling.start()
    filling.join(0.3)
    assert filling.is_alive()
    assert len(done) <= PIECES
    released.set()
    filling.join(DEADLINE_S)
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()


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


def test_a_file_whose_size_is_not_known_before_grows_with_its_pieces(tmp_path):
    stream = Stream(tmp_path / "x", HEAD)
    stream.put(len(HEAD), [b"one", memoryview(b"two")])
    stream.put(len(HEAD) + 6, [b"three"])
    assert stream.finish() == hashlib.sha256(b"headonetwothree").hexdigest()
    assert (tmp_path / "x").read_bytes() == b"headonetwothree"

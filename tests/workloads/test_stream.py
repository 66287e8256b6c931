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


def put(stream, content, at, then=lambda sha256: None):
    stream.put(len(HEAD) + at * PIECE, memoryview(content)[at * PIECE : (at + 1) * PIECE], then)


def prefix_digest(content, pieces):
    return hashlib.sha256(HEAD + content[: pieces * PIECE]).hexdigest()


@pytest.mark.parametrize("seed", range(4))
def test_pieces_in_any_order_make_the_whole_file_and_its_digest(tmp_path, seed):
    content = content_of(30)
    stream, found = opened(tmp_path / "x", content), {}
    for at in np.random.default_rng(seed).permutation(30).tolist():
        put(stream, content, at, lambda sha256, at=at: found.update({at: sha256}))
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()
    assert (tmp_path / "x").read_bytes() == HEAD + content
    assert found == {at: prefix_digest(content, at + 1) for at in range(30)}


def test_a_first_piece_that_comes_last_does_not_keep_the_others_in_memory(tmp_path):
    content = content_of(PIECES * 4)
    stream = opened(tmp_path / "x", content)
    given = [np.frombuffer(content, np.uint8, PIECE, at * PIECE).copy() for at in range(1, PIECES * 4)]
    for at, piece in enumerate(given, start=1):
        stream.put(len(HEAD) + at * PIECE, piece.data)
    assert sum(one.data is not None for one in stream._written.values()) <= EARLY + PIECES
    put(stream, content, 0)
    assert stream.finish() == hashlib.sha256(HEAD + content).hexdigest()


def test_what_was_put_before_an_interruption_is_believed_afterwards(tmp_path):
    content = content_of(8)
    stream, found = opened(tmp_path / "x", content), {}
    for at in range(5):
        put(stream, content, at, lambda sha256, at=at: found.update({at: sha256}))
    stream.close()
    again = opened(tmp_path / "x", content)
    assert [again.believe(len(HEAD) + (at + 1) * PIECE, found[at]) for at in range(5)] == [True] * 5
    for at in range(5, 8):
        put(again, content, at)
    assert again.finish() == hashlib.sha256(HEAD + content).hexdigest()


def test_what_was_damaged_meanwhile_is_not_believed_and_can_be_written_again(tmp_path):
    content = content_of(3)
    stream, found = opened(tmp_path / "x", content), {}
    for at in range(3):
        put(stream, content, at, lambda sha256, at=at: found.update({at: sha256}))
    stream.close()
    torn = bytearray((tmp_path / "x").read_bytes())
    torn[len(HEAD) + PIECE + 5] ^= 1
    (tmp_path / "x").write_bytes(torn)
    again = opened(tmp_path / "x", content)
    assert again.believe(len(HEAD) + PIECE, found[0])
    assert not again.believe(len(HEAD) + 2 * PIECE, found[1])
    put(again, content, 1)
    put(again, content, 2)
    assert again.finish() == hashlib.sha256(HEAD + content).hexdigest()
    assert (tmp_path / "x").read_bytes() == HEAD + content


def test_whoever_puts_more_than_is_written_waits(tmp_path):
    content = content_of(3 * PIECES)
    stream, released, done = opened(tmp_path / "x", content), threading.Event(), []

    def fill():
        for at in range(3 * PIECES):
            put(stream, content, at, lambda sha256: released.wait(DEADLINE_S))
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


def test_an_error_of_whoever_is_told_is_raised(tmp_path):
    content = content_of(2)

    def refuse(sha256):
        raise OSError("cannot be recorded")

    stream = opened(tmp_path / "x", content)
    put(stream, content, 0, refuse)
    with pytest.raises(OSError, match="cannot be recorded"):
        stream.finish()


def test_a_file_whose_size_is_not_known_before_grows_with_its_pieces(tmp_path):
    stream = Stream(tmp_path / "x", HEAD)
    stream.put(len(HEAD), [b"one", memoryview(b"two")])
    stream.put(len(HEAD) + 6, [b"three"])
    assert stream.finish() == hashlib.sha256(b"headonetwothree").hexdigest()
    assert (tmp_path / "x").read_bytes() == b"headonetwothree"

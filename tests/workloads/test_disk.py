"""Large files on the head's disk."""

import ctypes
import errno
import hashlib
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.workloads.disk import EARLY, PIECES, Stream, full_disk_is_no_room, map_file, settle, write_at


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_used_up_quota_are_no_room(tmp_path, number):
    message = f"disk of {tmp_path} became full while rows.npy was written"
    with pytest.raises(NoRoom, match=message), full_disk_is_no_room(tmp_path / "rows.npy"):
        raise OSError(number, os.strerror(number))


def test_it_says_what_was_being_done(tmp_path):
    with pytest.raises(NoRoom, match="while block 3 was recorded"):
        with full_disk_is_no_room(tmp_path / "key", "block 3 was recorded"):
            raise OSError(errno.ENOSPC, "full")


def test_any_other_error_is_left_as_it_is(tmp_path):
    with pytest.raises(PermissionError), full_disk_is_no_room(tmp_path / "rows.npy"):
        raise PermissionError(errno.EACCES, "not yours")


def test_bytes_lie_where_they_are_written_and_the_files_own_position_stays(tmp_path):
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"....")
        file.flush()
        write_at(file.fileno(), 6, memoryview(b"later"))
        write_at(file.fileno(), 1, memoryview(b"ab"))
        write_at(file.fileno(), 3, memoryview(b""))
        assert file.tell() == 4
    assert (tmp_path / "file").read_bytes() == b".ab.\0\0later"


def pages_in_memory(path):
    """Return how many pages of a file the page cache has."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        resident = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(mapped)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            address = ctypes.c_void_p(ctypes.addressof(start))
            assert libc.mincore(address, ctypes.c_size_t(len(mapped)), resident) == 0
        finally:
            del start
        return sum(page & 1 for page in resident)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS keeps what it likes")
def test_what_is_settled_is_whole_and_takes_no_memory(tmp_path):
    kind = subprocess.check_output(["stat", "--file-system", "--format=%T", str(tmp_path)], text=True).strip()
    if kind == "tmpfs":
        pytest.skip("files in memory are nowhere else")
    content = os.urandom(1 << 20)
    with (tmp_path / "part").open("wb", buffering=0) as file:
        file.write(content)
        assert pages_in_memory(tmp_path / "part") == len(content) // mmap.PAGESIZE
        settle(file.fileno(), 0, len(content))
    assert pages_in_memory(tmp_path / "part") == 0
    assert (tmp_path / "part").read_bytes() == content


class FileSystem:
    """Maps as the system does, but refuses some flags with an error."""

    def __init__(self, number, *refused):
        self.number, self.refused, self.asked = number, refused, []

    def __call__(self, descriptor, length, *, flags, prot):
        self.asked.append(flags)
        if flags in self.refused:
            raise OSError(self.number, os.strerror(self.number))
        return mmap.mmap(descriptor, length, flags=flags, prot=prot)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as opened:
        yield opened


def test_a_file_is_mapped_whole_shared_and_read_only(file):
    disk = FileSystem(0)
    mapped = map_file(file.fileno(), disk)
    assert bytes(mapped) == b"content"
    assert disk.asked == [mmap.MAP_SHARED]
    with pytest.raises(TypeError):
        mapped[0] = 0


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EINVAL])
def test_where_no_shared_mapping_is_to_be_had_a_private_one_serves(file, number):
    assert bytes(map_file(file.fileno(), FileSystem(number, mmap.MAP_SHARED))) == b"content"


def test_where_there_is_none_at_all_nothing_is_returned(file):
    assert map_file(file.fileno(), FileSystem(errno.ENODEV, mmap.MAP_SHARED, mmap.MAP_PRIVATE)) is None


def test_another_error_is_left_as_it_is(file):
    with pytest.raises(PermissionError):
        map_file(file.fileno(), FileSystem(errno.EACCES, mmap.MAP_SHARED))


@pytest.mark.skipif(not Path("/sys/kernel/notes").exists(), reason="this system has no such file")
def test_a_file_system_of_this_machine_that_maps_no_files_is_told_from_others():
    settings = next(path for path in Path("/sys/kernel/mm").rglob("*") if path.is_file() and path.stat().st_size)
    with settings.open("rb") as opened:
        assert map_file(opened.fileno()) is None


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

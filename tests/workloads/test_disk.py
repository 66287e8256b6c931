"""Writing large files: all of it, at its place, and a full disk said for what it is."""

import ctypes
import errno
import mmap
import os
import subprocess
import sys

import pytest

from raysm.errors import NoRoom
from raysm.workloads.disk import full_disk_is_no_room, settle, write_at


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

"""Files as memory, where a file system has all of it, a part of it, or none."""

import errno
import mmap
import os
from pathlib import Path

import pytest

from raysm.workloads.mapping import map_file


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

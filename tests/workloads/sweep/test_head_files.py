"""Files on the head, for every process."""

import os

import pyarrow.fs as pafs
import pytest

from raysm.workloads.sweep.head_files import PIECE_BYTES, HeadFiles, HeadFileSystem, serve_files


@pytest.fixture
def files(tmp_path):
    return HeadFiles(str(tmp_path / "root"))


def test_a_file_has_its_name_once_its_last_piece_is_there(files, tmp_path):
    files.make_folder("/a/b")
    files.write("/a/b/c", b"123", offset=0, last=False)
    assert files.infos(["/a/b/c"])[0][1] == "absent"
    assert files.inside("/a", True) == [("/a/b", "folder", 0, os.stat(tmp_path / "root/a/b").st_mtime)]
    files.write("/a/b/c", b"45", offset=3, last=True)
    assert files.read("/a/b/c", 1, 3) == b"234"


def test_a_piece_that_comes_twice_is_there_once(files):
    for _ in range(2):
        files.write("/c", b"123", offset=0, last=False)
    for _ in range(2):
        files.write("/c", b"45", offset=3, last=False)
    files.write("/c", b"", offset=5, last=True)
    assert files.read("/c", 0, 100) == b"12345"


def test_nothing_outside_of_the_folder_is_reached(files):
    with pytest.raises(PermissionError, match="outside of the folder of the sweep"):
        files.read("/../secret", 0, 10)


def test_what_is_not_there_is_none(files):
    assert files.inside("/nowhere", False) is None


@pytest.fixture
def filesystem(ray_here, tmp_path):
    actor = serve_files(tmp_path / "root", ray_here.get_runtime_context().get_node_id(), "files-of-test")
    yield pafs.PyFileSystem(HeadFileSystem("files-of-test"))
    ray_here.kill(actor)


def test_folders_travel_there_and_back_through_arrow(filesystem, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "small").write_bytes(b"1")
    (source / "empty").write_bytes(b"")
    (source / "deep" / "large").write_bytes(os.urandom(PIECE_BYTES * 2 + 5))
    pafs.copy_files(str(source), "/run/one", destination_filesystem=filesystem)
    assert sorted(path.name for path in (tmp_path / "root/run/one").rglob("*")) == ["deep", "empty", "large", "small"]
    pafs.copy_files("/run/one", str(tmp_path / "back"), source_filesystem=filesystem)
    for name in ("small", "empty", "deep/large"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()
    with filesystem.open_input_file("/run/one/deep/large") as file:
        file.seek(PIECE_BYTES)
        assert len(file.read()) == PIECE_BYTES + 5
    filesystem.delete_dir("/run/one/deep")
    filesystem.move("/run/one/small", "/run/one/moved")
    filesystem.copy_file("/run/one/moved", "/run/copy")
    found = filesystem.get_file_info(pafs.FileSelector("/run", recursive=True))
    assert sorted(info.path for info in found) == ["/run/copy", "/run/one", "/run/one/empty", "/run/one/moved"]
    filesystem.delete_dir_contents("/run/one")
    filesystem.delete_file("/run/copy")
    assert [info.path for info in filesystem.get_file_info(pafs.FileSelector("/run", recursive=True))] == ["/run/one"]


def test_what_is_missing_is_an_error_that_arrow_knows(filesystem):
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_stream("/nowhere")
    with pytest.raises(FileNotFoundError):
        filesystem.get_file_info(pafs.FileSelector("/nowhere"))
    assert filesystem.get_file_info(pafs.FileSelector("/nowhere", allow_not_found=True)) == []
    assert filesystem.get_file_info("/nowhere").type == pafs.FileType.NotFound


def test_a_filesystem_is_known_by_its_actor():
    one, same, other = HeadFileSystem("a"), HeadFileSystem("a"), HeadFileSystem("b")
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one.get_type_name() == "raysm-head"

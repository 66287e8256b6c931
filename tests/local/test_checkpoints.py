"""Checkpoints of several instances and the one folder that survives them."""

import os

import pytest

from raysm.local.checkpoints import CheckpointSync, FolderStore
from raysm.local.instance_files import InstanceFiles


@pytest.fixture
def folders(tmp_path):
    for name in ("kept", "1", "2"):
        (tmp_path / name).mkdir()
    return tmp_path / "kept", tmp_path / "1", tmp_path / "2"


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def syncing(store, *folders):
    return CheckpointSync(
        store, {folder: InstanceFiles(base=folder, sees_machine=False) for folder in folders}
    )


@pytest.mark.parametrize("goes", ["first", "second"])
def test_an_instance_that_is_gone_does_not_come_back_with_its_checkpoints(folders, tmp_path, goes):
    kept, first, second = folders
    (kept / "a").mkdir()
    (kept / "a" / "b").write_text("x")
    gone = first if goes == "first" else second
    gone.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        syncing(FolderStore(kept), first, second).restore()
    assert not gone.exists()


def test_what_instances_write_is_merged_and_only_what_changed_is_taken_again(folders):
    kept, first, second = folders
    sync = syncing(FolderStore(kept), first, second)
    sync.restore()
    (first / "one").write_text("1")
    (second / "sub").mkdir()
    (second / "sub" / "two").write_text("2")
    sync.collect()
    assert files(kept) == {"one": "1", "sub/two": "2"}
    (kept / "one").write_text("changed by somebody else")
    (second / "sub" / "two").write_text("22")
    sync.collect()
    assert files(kept) == {"one": "changed by somebody else", "sub/two": "22"}


@pytest.mark.parametrize("later", [0, 1])
def test_of_files_of_one_name_the_later_one_is_kept(folders, later):
    kept, *instances = folders
    sync = syncing(FolderStore(kept), *instances)
    for number, folder in enumerate(instances):
        (folder / "state").write_text(folder.name)
        os.utime(folder / "state", (0, 2 if number == later else 1))
    sync.collect()
    assert files(kept) == {"state": instances[later].name}


def test_what_lies_behind_a_link_to_a_folder_is_kept_too(folders):
    kept, first, second = folders
    sync = syncing(FolderStore(kept), first, second)
    (first / "step-2").mkdir()
    (first / "step-2" / "shard").write_text("2")
    (first / "last").symlink_to("step-2")
    sync.collect()
    assert files(kept) == {"step-2/shard": "2", "last/shard": "2"}
    (first / "last").unlink()
    sync.collect()
    assert files(kept) == {"step-2/shard": "2"}


def test_what_lies_behind_a_link_out_of_the_instance_is_not_kept_and_named(folders, tmp_path):
    kept, first, second = folders
    (tmp_path / "secret").write_text("of this machine")
    sync = syncing(FolderStore(kept), first, second)
    (first / "weights").write_text("1")
    (first / "file").symlink_to(tmp_path / "secret")
    (second / "folder").symlink_to(tmp_path)
    sync.collect()
    sync.close()
    assert files(kept) == {"weights": "1"}
    named, other = sorted(sync.remarks())
    assert ("file" in named, str(tmp_path / "secret") in named, "folder" in other) == (
        True,
        True,
        True,
    )


class Full(FolderStore):
    """Has no room while ``full``."""

    full = True

    def put(self, path, name):
        if self.full and path.name == "large":
            raise OSError("no room")
        super().put(path, name)


def test_what_could_not_be_kept_is_tried_again(folders):
    store = Full(folders[0])
    sync = syncing(store, folders[1])
    sync.restore()
    (folders[1] / "large").write_text("1")
    sync.collect()
    assert files(folders[0]) == {}
    store.full = False
    sync.close()
    assert files(folders[0]) == {"large": "1"}


def test_a_file_may_come_in_the_place_of_a_folder(folders):
    kept, first, _ = folders
    sync = syncing(FolderStore(kept), first)
    sync.restore()
    (first / "a").mkdir()
    (first / "a" / "b").write_text("1")
    sync.collect()
    (first / "a" / "b").unlink()
    (first / "a").rmdir()
    (first / "a").write_text("2")
    sync.close()
    assert files(kept) == {"a": "2"}

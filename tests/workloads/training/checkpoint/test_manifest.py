import pytest

from raysm.contract.store import read_json, sha256_of
from raysm.errors import InvalidConfig
from raysm.workloads.training.checkpoint.manifest import (
    MANIFEST,
    DataOrder,
    FileRecord,
    Manifest,
    is_intact,
    list_folders,
    parse_manifest,
    read_manifests,
)


def manifest(step, *, run="0a1b2c3d", value=None, time_s=0.0, files=None):
    order = DataOrder(samples=9, batch_size=2, shuffle=True, seed=4)
    return Manifest(
        step=step,
        epoch=1,
        offset=4,
        workers=2,
        layout="data=2",
        run=run,
        files=files or {},
        order=order,
        value=value,
        time_s=time_s,
    )


def test_a_folder_without_a_manifest_or_with_half_of_one_is_no_checkpoint(tmp_path):
    for step in (1, 2, 3):
        manifest(step).write(tmp_path / manifest(step).name)
    (tmp_path / manifest(2).name / MANIFEST).unlink()
    torn = tmp_path / manifest(3).name / MANIFEST
    torn.write_bytes(torn.read_bytes()[:-20])
    assert [one.step for one in read_manifests(tmp_path).values()] == [1]
    assert list_folders(tmp_path) == [manifest(step).name for step in (3, 2, 1)]


@pytest.mark.parametrize("name", ["../a", "", ".", "..", MANIFEST, "a\0b", "\ud800"])
def test_a_manifest_names_files_of_its_own_folder_only(tmp_path, name):
    manifest(7, files={name: FileRecord(bytes=1, sha256="00")}).write(tmp_path)
    with pytest.raises(InvalidConfig, match="not a valid name for a file"):
        parse_manifest(read_json(tmp_path / MANIFEST), "step-7")


def test_a_file_is_intact_only_with_its_size_and_its_digest(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    record = FileRecord(bytes=3, sha256=sha256_of(path))
    assert is_intact(path, record)
    path.write_bytes(b"abd")
    assert not is_intact(path, record)
    path.unlink()
    assert not is_intact(path, record)

"""The manifest beside what user code left."""

import hashlib
import json

import raysm
from raysm.contract.result import MANIFEST, ResultFile, own_manifest
from raysm.request import Cluster, Input, JobRequest
from raysm.workloads.left_files import write_manifest

REQUEST = JobRequest(
    name="a-job",
    workload=raysm.Script("main.py"),
    cluster=Cluster(),
    inputs={"images": Input("s3://bucket/images")},
)


def written(folder, **options):
    return write_manifest(REQUEST, folder, instances=("algo-1",), phases_s={"script": 1.23456}, **options)


def test_every_file_is_named_with_its_digest_and_how_it_is_read(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "rows.npy").write_bytes(b"rows")
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / "torn.partial").write_bytes(b"x")
    manifest = written(tmp_path)
    files = {file.name: file for file in manifest.files}
    assert files["inner/rows.npy"].sha256 == hashlib.sha256(b"rows").hexdigest()
    assert 'numpy.load("inner/rows.npy"' in files["inner/rows.npy"].how_to_read
    assert files["notes.txt"].bytes == 0
    data = json.loads((tmp_path / MANIFEST).read_text())
    assert data["phases_s"] == {"script": 1.235}
    assert data["versions"]["raysm"] == raysm.__version__
    assert set(data["inputs"]) == {"images"}


def test_what_is_described_already_comes_first_and_once(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a")
    (tmp_path / "model.safetensors").write_bytes(b"model")
    described = ResultFile(name="model.safetensors", shape=(3,), bytes=5, sha256="0" * 64, how_to_read="read it")
    names = [file.name for file in written(tmp_path, described=(described,)).files]
    assert names == ["model.safetensors", "a.txt"]


def test_of_packages_that_are_not_installed_no_version_is_told(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a")
    versions = written(tmp_path, packages=("numpy", "no-such-package")).versions
    assert "numpy" in versions
    assert "no-such-package" not in versions


def test_of_several_instances_the_manifest_is_written_though_the_head_has_no_file(tmp_path):
    options = {"instances": ("algo-1", "algo-2"), "phases_s": {"script": 1.0}}
    assert write_manifest(REQUEST, tmp_path, **options).files == ()
    assert own_manifest(tmp_path).instances == ("algo-1", "algo-2")


def test_an_empty_folder_and_a_users_own_manifest_get_none(tmp_path):
    assert written(tmp_path) is None
    (tmp_path / MANIFEST).write_text("mine")
    assert written(tmp_path) is None
    assert (tmp_path / MANIFEST).read_text() == "mine"

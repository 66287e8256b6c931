"""The manifest of a result."""

import hashlib
import json

import raysm
from raysm.contract.result import MANIFEST
from raysm.request import Cluster, Input, JobRequest
from raysm.workloads.runner import write_manifest

REQUEST = JobRequest(
    name="a-job", workload=raysm.Script("main.py"), cluster=Cluster(), inputs={"images": Input("s3://bucket/images")}
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


def test_an_empty_folder_and_a_users_own_manifest_get_none(tmp_path):
    assert written(tmp_path) is None
    (tmp_path / MANIFEST).write_text("mine")
    assert written(tmp_path) is None
    assert (tmp_path / MANIFEST).read_text() == "mine"

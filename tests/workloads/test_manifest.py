"""The manifest of a result."""

import hashlib
import json

import pytest

import raysm
from raysm.bootstrap import environment as environments
from raysm.contract import names
from raysm.contract.result import MANIFEST, ResultFile
from raysm.request import Cluster, Input, JobRequest
from raysm.workloads.runner import START_S, Beginning, write_manifest
from tests.support.bootstraps import write_training


@pytest.fixture
def told(tmp_path):
    """Return what an instance is told whose container began at a moment, or that knows of none."""
    write_training(tmp_path, "algo-1", ["algo-1"])

    def told(**variables):
        return environments.read({names.BASE_DIR: str(tmp_path), **variables})

    return told


@pytest.fixture(autouse=True)
def unnoted():
    """Each test is a driver of its own."""
    yield
    Beginning._measures = {}


@pytest.mark.parametrize(("now_s", "start_s"), [(1012.3456, 12.346), (990.0, 0.0)])
def test_it_is_the_time_from_the_first_program_to_the_workload_and_never_negative(told, now_s, start_s):
    Beginning.note(told(RAYSM_BEGAN="1000.0"), now_s)
    assert Beginning.measures() == {START_S: start_s}


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


def test_an_empty_folder_and_a_users_own_manifest_get_none(tmp_path):
    assert written(tmp_path) is None
    (tmp_path / MANIFEST).write_text("mine")
    assert written(tmp_path) is None
    assert (tmp_path / MANIFEST).read_text() == "mine"

"""What several instances leave under one name: the head's is the job's, and nothing of the others' takes its place."""

import hashlib
import os
from types import SimpleNamespace

import pytest

from raysm.bootstrap.outputs import give_way, read_outputs, warn_of_lost_files
from raysm.contract.job_api import APIS
from raysm.contract.paths import Paths
from raysm.contract.result import Manifest, described_file
from raysm.request import Script, Similarity
from tests.support.bootstraps import Cluster, request

BEGUN_S = 1_000_000_000.0


@pytest.fixture
def instance(tmp_path):
    paths = Paths(tmp_path / "ml")
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").touch()
    os.utime(source / "train.py", (BEGUN_S - 60, BEGUN_S - 60))
    return SimpleNamespace(
        name="algo-1",
        request=SimpleNamespace(workload=Script("train.py")),
        environment=SimpleNamespace(paths=paths, has_checkpoints=True),
        payload=SimpleNamespace(source=source),
    )


def test_files_that_a_script_left_in_its_working_folder_are_named(instance):
    (instance.payload.source / "checkpoint.pth.tar").touch()
    (instance.environment.paths.working / "runs").mkdir(parents=True)
    (instance.environment.paths.working / "runs" / "log").touch()
    (instance.environment.paths.working / "train.py").symlink_to(instance.payload.source / "train.py")
    assert warn_of_lost_files(instance, BEGUN_S) == (
        "warning: files in the working folder of algo-1 are lost now: checkpoint.pth.tar, runs/log; write results to "
        "$SM_MODEL_DIR and checkpoints to $RAYSM_STATE; or use --in-state"
    )


def test_of_a_state_folder_nothing_is_lost(instance, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "checkpoint.pth.tar").touch()
    instance.environment.paths.working.parent.mkdir(parents=True)
    instance.environment.paths.working.symlink_to(tmp_path / "state")
    assert warn_of_lost_files(instance, BEGUN_S) is None


def test_a_workload_without_a_script_is_asked_for_its_working_folder_alone(instance):
    instance.request.workload = Similarity(top_k=3)
    (instance.payload.source / "x").touch()
    assert warn_of_lost_files(instance, BEGUN_S) is None


def write(paths, **files):
    """Write ``model`` and ``data`` files: names with their content."""
    for folder, content in ((paths.model, files.get("model", {})), (paths.output_data, files.get("data", {}))):
        for name, text in content.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_of_the_model_what_others_have_is_left_out_and_of_the_rest_kept_apart(tmp_path, api):
    paths = Paths(tmp_path, api)
    write(paths, model={"model.pt": "mine", "shard-2": "mine"}, data={"log/x.txt": "mine", "own.txt": "mine"})
    files = read_outputs(paths)
    taken = [key for key, path in files.items() if path.name in ("model.pt", "x.txt")]
    said = give_way(paths, "algo-2", files, [*taken, "of nobody"])
    assert names(paths.model) == ["shard-2"]
    assert names(paths.output_data) == ["algo-2/log/x.txt", "own.txt"]
    assert said == [
        "algo-2: the result has model.pt from another instance, so this one's is left out; files whose names differ "
        "from instance to instance are all kept",
        "algo-2: another instance has log/x.txt too; this one's is kept in algo-2/",
    ]


def manifest_of(*files):
    return Manifest(
        job="a-job",
        workload={},
        inputs={},
        files=tuple(described_file(name, 1, "0") for name in files),
        versions={},
        instances=("algo-1", "algo-2"),
        phases_s={},
    )


def test_at_the_end_of_a_job_no_file_has_two_owners_and_the_manifest_lists_all_with_their_digests(tmp_path):
    with Cluster(tmp_path, request(3)) as cluster:
        head, second, third = (Paths(cluster.base(host)) for host in cluster.hosts)
        write(head, model={"model.pt": "rank 0"}, data={"log.txt": "head"})
        manifest_of("model.pt", "of-the-owner.parquet").write(head.model)
        write(second, model={"part-1.parquet": "second", "model.pt": "clash", "of-the-owner.parquet": "known"})
        write(second, data={"log.txt": "second"})
        write(third, model={f"shards/{number}.distcp": f"third {number}" for number in range(300)}, data={"x.log": ""})
        assert cluster.start().wait(60) == {"algo-1": 0, "algo-2": 0, "algo-3": 0}
        assert (head.model / "model.pt").read_text() == "rank 0"
        assert names(second.model) == ["of-the-owner.parquet", "part-1.parquet"]
        assert (head.output_data / "log.txt").read_text() == "head"
        assert names(second.output_data) == ["algo-2/log.txt"]
        assert "the result has model.pt from another instance" in cluster.log("algo-2")
        assert "algo-2: the result" not in cluster.log("algo-1")
        files = {file.name: file for file in Manifest.read(head.model).files}
    shards = {f"shards/{number}.distcp" for number in range(300)}
    assert files.keys() == {"model.pt", "of-the-owner.parquet", "part-1.parquet", *shards}
    # Files that the manifest lists already stay as they are.
    assert files["of-the-owner.parquet"].sha256 == files["model.pt"].sha256 == "0"
    assert files["part-1.parquet"].sha256 == hashlib.sha256(b"second").hexdigest()
    assert files["part-1.parquet"].bytes == 6
    assert files["part-1.parquet"].how_to_read.endswith('pq.read_table("part-1.parquet")')
    assert files["shards/299.distcp"].sha256 == hashlib.sha256(b"third 299").hexdigest()

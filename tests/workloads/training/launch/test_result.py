"""The manifest beside a trained model."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from raysm.contract.result import MODEL_FILE, Manifest, Measured
from raysm.contract.store import sha256_of
from raysm.request import Cluster, Input, JobRequest, TrainLoop
from raysm.workloads.folders import read_pieces, write_pieces
from raysm.workloads.training.launch.launch import write_manifest


def test_files_behind_a_link_to_a_folder_arrive_too(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "step-2").mkdir(parents=True)
    (there / "step-2" / "weights").write_bytes(b"2")
    (there / "last").symlink_to("step-2")
    (there / "last.ckpt").symlink_to("step-2/weights")
    (there / "nowhere").symlink_to("gone")
    write_pieces(read_pieces(there), here)
    assert {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*") if path.is_file()} == {
        "last.ckpt": b"2",
        "last/weights": b"2",
        "step-2/weights": b"2",
    }


def test_a_file_that_did_not_come_whole_is_not_there(tmp_path):
    def torn():
        yield "whole", b"x"
        yield "whole", b""
        yield "torn", b"x"
        raise ConnectionError("the instance is gone")

    with pytest.raises(ConnectionError):
        write_pieces(torn(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


@pytest.fixture
def request_():
    return JobRequest(
        name="a-job",
        workload=TrainLoop(name="mine.train", python="3.11", precision="bf16"),
        cluster=Cluster(count=2),
        inputs={"train": Input("s3://bucket/images")},
    )


def test_it_says_what_was_trained_and_where_the_time_went(request_, tmp_path):
    save_file({"weight": torch.ones(3, 4), "bias": torch.ones(3)}, tmp_path / MODEL_FILE, metadata={"format": "pt"})
    Measured(summary="41 % of the step waits for data", measures={"step_s": 0.5}).write(tmp_path)
    written = write_manifest(request_, tmp_path, ("algo-1", "algo-2"), training_s=12.3456)
    found = Manifest.read(tmp_path)
    assert found == written
    assert (found.job, found.instances, found.phases_s) == ("a-job", ("algo-1", "algo-2"), {"training": 12.346})
    assert (found.workload["name"], found.workload["precision"]) == ("mine.train", "bf16")
    assert found.inputs["train"]["uri"] == "s3://bucket/images"
    assert (found.summary, found.measures) == ("41 % of the step waits for data", {"step_s": 0.5})
    model, beside = found.files
    assert (beside.name, beside.how_to_read) == ("training.json", "")
    assert (model.name, model.sha256) == (MODEL_FILE, sha256_of(tmp_path / MODEL_FILE))
    assert model.how_to_read == "safetensors.torch.load_file('model.safetensors')"
    assert load_file(tmp_path / MODEL_FILE).keys() == {"weight", "bias"}

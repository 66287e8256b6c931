"""Attempts, restarts, lost instances and results, without Ray."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from raysm.core.protocol.result import MODEL_FILE, Manifest, Measured
from raysm.core.protocol.store import sha256_of
from raysm.core.request import Cluster, Input, JobRequest
from raysm.errors import InstanceLost, InvalidRequest, WorkerFailed
from raysm.features.training.cluster.launch.launch import NodesLost, Stopped, train, write_manifest
from raysm.features.training.cluster.launch.placement import place
from raysm.features.training.request import TrainLoop
from raysm.instance.work.folders import read_pieces, write_pieces
from raysm.instance.work.nodes import Node


def node(number, node_id=None):
    return Node(
        host=f"algo-{number}",
        node_id=node_id or f"id-{number}",
        address="",
        rank=number - 1,
        instance_type="",
        cpus=1,
        gpus=0,
    )


class Script:
    """Attempts that end as told; ``present`` are the instances that are there."""

    def __init__(self, *ends):
        self.ends, self.present = list(ends), [node(1), node(2)]
        self.attempts, self.said = [], []

    def attempt(self, places, number):
        self.attempts.append((number, [item.node.node_id for item in places]))
        end = self.ends.pop(0)
        if end is not None:
            raise end

    def train(
        self, max_restarts=0, on_instance_loss="fail", sleep=lambda seconds: None, place=place
    ):
        return train(
            self.attempt,
            nodes=lambda: self.present,
            place=place,
            max_restarts=max_restarts,
            on_instance_loss=on_instance_loss,
            say=self.said.append,
            sleep=sleep,
        )


def failed(rank=1):
    return WorkerFailed(rank, "algo-2", "ValueError", "no such layer")


def test_a_failed_worker_is_not_tried_again_unless_asked_for():
    script = Script(failed())
    with pytest.raises(WorkerFailed, match="rank 1 on algo-2.*no such layer"):
        script.train()
    assert len(script.attempts) == 1


def test_all_start_anew_as_often_as_allowed():
    script = Script(failed(), failed(), None)
    assert len(script.train(max_restarts=2)) == 2
    assert [number for number, _ in script.attempts] == [0, 1, 2]
    assert "restart 2 of 2" in "\n".join(script.said)
    with pytest.raises(WorkerFailed):
        Script(failed(), failed()).train(max_restarts=1)


def test_a_lost_instance_fails_the_job_unless_the_request_allows_it():
    with pytest.raises(InstanceLost, match="algo-2"):
        Script(NodesLost([node(2)], "silent")).train()


def test_without_a_lost_instance_the_others_go_on_and_it_is_no_restart():
    script = Script(NodesLost([node(2)], "silent"), None)
    script.train(on_instance_loss="continue")
    # Ray may still show it as alive.
    assert script.attempts == [(0, ["id-1", "id-2"]), (1, ["id-1"])]


def test_an_instance_whose_ray_comes_back_trains_again():
    script = Script(NodesLost([node(2)], "its Ray ended"), None)

    def return_it(seconds):
        script.present[1] = node(2, "id-2-anew")

    script.train(max_restarts=1, sleep=return_it)
    assert script.attempts[1] == (1, ["id-1", "id-2-anew"])


def test_a_stop_ends_it_and_what_cannot_be_is_not_tried_again():
    for end in (Stopped(clean=True), InvalidRequest("data=3 x tensor=2 is 6")):
        script = Script(end)
        with pytest.raises(type(end)):
            script.train(max_restarts=5)
        assert len(script.attempts) == 1


def test_files_behind_a_link_to_a_folder_arrive_too(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "step-2").mkdir(parents=True)
    (there / "step-2" / "weights").write_bytes(b"2")
    (there / "last").symlink_to("step-2")
    (there / "last.ckpt").symlink_to("step-2/weights")
    (there / "nowhere").symlink_to("gone")
    write_pieces(read_pieces(there), here)
    assert {
        path.relative_to(here).as_posix(): path.read_bytes()
        for path in here.rglob("*")
        if path.is_file()
    } == {
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
    save_file(
        {"weight": torch.ones(3, 4), "bias": torch.ones(3)},
        tmp_path / MODEL_FILE,
        metadata={"format": "pt"},
    )
    Measured(summary="41 % of the step waits for data", measures={"step_s": 0.5}).write(tmp_path)
    written = write_manifest(request_, tmp_path, ("algo-1", "algo-2"), training_s=12.3456)
    found = Manifest.read(tmp_path)
    assert found == written
    assert (found.job, found.instances, found.phases_s) == (
        "a-job",
        ("algo-1", "algo-2"),
        {"training": 12.346},
    )
    assert (found.workload["name"], found.workload["precision"]) == ("mine.train", "bf16")
    assert found.inputs["train"]["uri"] == "s3://bucket/images"
    assert (found.summary, found.measures) == ("41 % of the step waits for data", {"step_s": 0.5})
    model, beside = found.files
    assert (beside.name, beside.how_to_read) == ("training.json", "")
    assert (model.name, model.sha256) == (MODEL_FILE, sha256_of(tmp_path / MODEL_FILE))
    assert (
        model.how_to_read
        == "import safetensors.torch; tensors = safetensors.torch.load_file('model.safetensors')"
    )
    assert load_file(tmp_path / MODEL_FILE).keys() == {"weight", "bias"}

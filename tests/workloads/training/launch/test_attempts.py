"""Attempts, restarts and lost instances, without Ray."""

import pytest

from raysm.errors import InstanceLost, InvalidRequest, WorkerFailed
from raysm.workloads.nodes import Node
from raysm.workloads.training.launch.launch import NodesLost, Stopped, train
from raysm.workloads.training.launch.placement import place


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

    def train(self, max_restarts=0, on_instance_loss="fail", sleep=lambda seconds: None, place=place):
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
    with pytest.raises(WorkerFailed, match="rank 1 on algo-2: ValueError: no such layer"):
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
    with pytest.raises(InstanceLost, match="algo-2 lost while it trained"):
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

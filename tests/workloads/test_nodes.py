"""The instances as Ray knows them, read from rows as ``ray.nodes()`` returns them, and what they answer."""

import os

import pytest

from raysm.errors import InvalidInput
from raysm.workloads.nodes import answers, ask_every_node, cluster_nodes


def test_the_instances_are_read_from_rays_nodes_by_rank_without_the_dead():
    def row(number, alive=True):
        labels = {"raysm.io/host": f"algo-{number}", "raysm.io/rank": str(number - 1)}
        resources = {"CPU": 2.0, "GPU": 1.0, "object_store_memory": 5e9}
        return {
            "Alive": alive,
            "NodeID": f"id-{number}",
            "NodeManagerAddress": "10.0.0.1",
            "Labels": labels,
            "Resources": resources,
        }

    nodes = cluster_nodes([row(11), row(2, alive=False), row(1)])
    assert [(item.host, item.cpus, item.gpus) for item in nodes] == [("algo-1", 2, 1), ("algo-11", 2, 1)]
    assert {item.object_store_bytes for item in nodes} == {5_000_000_000}


def answer(text):
    if text == "unusable":
        raise InvalidInput("a.npy is no matrix")
    if text == "wrong":
        raise KeyError(text)
    if text == "gone":
        os._exit(1)
    return text


def ask(text):
    return list(ask_every_node(answer, text, max_retries=0).values())


def test_an_instance_that_went_away_has_no_answer(ray_here):
    assert answers([*ask("one"), *ask("gone"), *ask("two")]) == ["one", "two"]


def test_files_that_an_instance_cannot_use_are_the_users_error_without_rays_traceback(ray_here):
    with pytest.raises(InvalidInput) as raised:
        answers(ask("unusable"))
    assert (str(raised.value), raised.value.__suppress_context__) == ("a.npy is no matrix", True)


def test_any_other_failure_of_an_instance_is_raised_as_it_is(ray_here):
    with pytest.raises(KeyError):
        answers(ask("wrong"))

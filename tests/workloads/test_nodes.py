"""The instances as Ray knows them, placed blocks, and instances that are away."""

import os
from dataclasses import dataclass

import pytest

from raysm.contract.names import LABEL_HOST
from raysm.errors import InstanceLost, InvalidInput
from raysm.workloads.blocks import FileBlock
from raysm.workloads.nodes import (
    PlacedBlock,
    Presence,
    answers,
    ask_every_node,
    cluster_nodes,
    host_of,
    inputs_of,
    needed_hosts,
)
from raysm.workloads.row_blocks import RowBlock


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


@dataclass(frozen=True)
class Full(PlacedBlock):
    host: str | None = "algo-2"
    needs: tuple[str, ...] = ("algo-1",)
    inputs: tuple[object, ...] = ("reference",)


@dataclass(frozen=True)
class Lookalike:
    host: str = "algo-2"
    needs: str = "water"
    inputs: tuple[str, ...] = ("a", "b")


@pytest.mark.parametrize(
    ("block", "host", "hosts", "inputs"),
    [
        (Full(), "algo-2", ("algo-2", "algo-1"), ("reference",)),
        (Full(host=None), None, ("algo-1",), ("reference",)),
        (Lookalike(), None, (), ()),
        ("rows 0 to 9", None, (), ()),
    ],
)
def test_only_a_placed_block_is_asked(block, host, hosts, inputs):
    assert (host_of(block), needed_hosts(block), tuple(inputs_of(block))) == (host, hosts, inputs)


def nodes(*hosts: str) -> list[dict[str, dict[str, object]]]:
    return [{"Labels": {LABEL_HOST: host}, "Resources": {"CPU": 1.0}} for host in hosts]


def test_a_block_whose_instance_stays_away_is_given_up():
    block = FileBlock(channel="images", name="a", size_bytes=0, host="algo-2")
    presence = Presence(1, 0)
    presence.check([block, RowBlock(0, 1)], nodes("algo-1"), 0.0)
    presence.check([block], nodes("algo-1", "algo-2"), 50.0)
    presence.check([block], nodes("algo-1"), 100.0)
    presence.check([block], nodes("algo-1"), 160.0)
    with pytest.raises(InstanceLost, match="algo-2 has been away for 61 s, and only it has file images/a on algo-2"):
        presence.check([block], nodes("algo-1"), 161.0)


def test_blocks_that_no_instance_is_left_to_run_are_given_up():
    presence = Presence(1, 0)
    head = {"Labels": {LABEL_HOST: "algo-1"}, "Resources": {"memory": 1.0}}
    presence.check([RowBlock(0, 1)], [head], 0.0)
    presence.check([RowBlock(0, 1)], [head, *nodes("algo-2")], 50.0)
    presence.check([RowBlock(0, 1)], [head], 100.0)
    presence.check([RowBlock(0, 1)], [head], 160.0)
    with pytest.raises(InstanceLost, match="for 61 s no instance .* num_cpus=1 and num_gpus=0: all that could went"):
        presence.check([RowBlock(0, 1)], [head], 161.0)

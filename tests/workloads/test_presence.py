"""Since when instances have been away, and when blocks are given up for it."""

from dataclasses import dataclass

import pytest

from raysm.contract.names import LABEL_HOST
from raysm.errors import InstanceLost
from raysm.workloads.blocks import FileBlock, RowBlock
from raysm.workloads.presence import Presence, tasks_at_once


def nodes(*hosts: str) -> list[dict[str, dict[str, object]]]:
    return [{"Labels": {LABEL_HOST: host}, "Resources": {"CPU": 1.0}} for host in hosts]


@dataclass(frozen=True)
class Request:
    """A user's own value, whose fields happen to be named as those of a PlacedBlock are."""

    inputs: tuple[str, ...]
    host: str
    needs: str


def test_an_instance_that_a_users_block_names_is_not_waited_for():
    presence = Presence(1, 0)
    for now_s in (0.0, 1000.0):
        presence.check([Request(inputs=(), host="db.example.com", needs="water")], nodes("algo-1"), now_s)


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


@pytest.mark.parametrize(
    ("resources", "num_cpus", "num_gpus", "at_once"),
    [
        ([{"CPU": 4.0}, {"CPU": 2.0}], 1, 0, 6),
        ([{"CPU": 4.0}, {"CPU": 2.0}], 3, 0, 1),
        ([{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}], 1, 1, 1),
        ([{"CPU": 1.0}], 0.1, 0, 10),
        ([{"memory": 1.0}, {"CPU": 2.0}], 0, 0, 2),
        ([], 1, 0, 0),
    ],
)
def test_tasks_run_where_all_that_they_need_is_left(resources, num_cpus, num_gpus, at_once):
    assert tasks_at_once(resources, num_cpus, num_gpus) == at_once

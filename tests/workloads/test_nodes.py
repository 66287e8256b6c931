"""The instances as Ray knows them, placed blocks, and instances that are away."""

import os

import pytest

from raysm.contract.names import LABEL_HOST
from raysm.errors import InstanceLost, InvalidInput
from raysm.workloads.blocks import FileBlock
from raysm.workloads.nodes import Presence, answers, ask_every_node
from raysm.workloads.row_blocks import RowBlock


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


def test_files_that_an_instance_cannot_use_are_the_users_error_without_rays_traceback(ray_here):
    with pytest.raises(InvalidInput) as raised:
        answers(ask("unusable"))
    assert (str(raised.value), raised.value.__suppress_context__) == ("a.npy is no matrix", True)


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

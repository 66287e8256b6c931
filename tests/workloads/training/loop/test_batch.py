"""A batch: its inputs and its target, and where its tensors are."""

import pytest
import torch

from raysm.errors import InvalidInput
from raysm.workloads.training.loop.batch import inputs_and_target, on_device


@pytest.mark.parametrize("kind", [tuple, list])
def test_the_last_item_is_the_target(kind):
    assert inputs_and_target(kind(["tokens", "mask", "label"])) == (("tokens", "mask"), "label")


@pytest.mark.parametrize("batch", [torch.zeros(2), {"x": 1, "y": 2}, (torch.zeros(2),), []])
def test_what_has_no_target_is_refused(batch):
    with pytest.raises(InvalidInput, match=f"got a {type(batch).__name__}; give a tuple"):
        inputs_and_target(batch)


def test_tensors_move_wherever_they_are_nested_and_nothing_else_does():
    batch = ({"x": torch.zeros(2), "name": "one"}, [torch.ones(1)])
    moved = on_device(batch, torch.device("meta"))
    assert (moved[0]["x"].device.type, moved[0]["name"], moved[1][0].device.type) == ("meta", "one", "meta")
    assert on_device(batch, torch.device("cpu")) is batch

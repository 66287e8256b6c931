"""A batch: its inputs and its target, and where its tensors are."""

import pytest
import torch

from raysm.errors import InvalidInput
from raysm.workloads.training.loop.batch import inputs_and_target, on_device, pieces, rows_of


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


def test_pieces_have_all_rows_in_their_order_and_differ_by_one_row_at_most():
    rows = torch.arange(8)
    cut = list(pieces((rows, {"y": rows * 2}), 3))
    assert torch.cat([piece[0] for piece, _ in cut]).tolist() == list(range(8))
    assert [len(piece[1]["y"]) for piece, _ in cut] == [3, 3, 2]
    assert [share for _, share in cut] == [3 / 8, 3 / 8, 2 / 8]


def test_a_piece_without_rows_is_one_that_does_not_count():
    cut = list(pieces((torch.arange(2),), 4))
    assert [piece[0].tolist() for piece, _ in cut] == [[0], [1], [0], [0]]
    assert [share for _, share in cut] == [0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("batch", [("text",), (torch.zeros(3), torch.zeros(2)), (torch.zeros(3), torch.tensor(1.0))])
def test_what_has_no_rows_cannot_be_weighed(batch):
    with pytest.raises(InvalidInput, match="one entry for each row"):
        rows_of(batch)

"""A batch: its inputs and target, and the random numbers that its samples draw."""

import random

import pytest
import torch
from torch.utils.data import default_collate

from raysm.errors import InvalidInput
from raysm.features.training.cluster.loop.batch import Batch, Reader


@pytest.mark.parametrize("batch", [torch.zeros(2), {"x": 1, "y": 2}, (torch.zeros(2),), []])
def test_what_has_no_target_is_refused(batch):
    with pytest.raises(InvalidInput, match=f"{type(batch).__name__}.*tuple"):
        Batch.of(batch)


class Augmented:
    """Adds a random number to each row."""

    def __getitem__(self, row):
        return row + random.random()


class Sliced(Augmented):
    """Reads several rows at once, all with the numbers of one."""

    def __getitems__(self, rows):
        return [self[row] for row in rows]


@pytest.mark.parametrize("kind", [Augmented, Sliced])
def test_what_a_row_draws_follows_from_seed_epoch_and_row_alone(kind):
    together = Reader(kind(), 7, default_collate)[0, [3, 4, 5]]
    alone = [Reader(kind(), 7, default_collate)[0, [row]].item() for row in (3, 4, 5)]
    assert together.tolist() == alone
    assert Reader(kind(), 7, default_collate)[1, [3]].item() != alone[0]
    assert Reader(kind(), 8, default_collate)[0, [3]].item() != alone[0]

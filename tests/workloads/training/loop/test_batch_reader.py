"""Rows of a data set to a batch."""

import random

import pytest
import torch
from torch.utils.data import Subset, TensorDataset, default_collate

from raysm.workloads.training.loop.batch import Reader


class Augmented:
    """Adds a random number to each row."""

    def __getitem__(self, row):
        return row + random.random()


class Sliced(Augmented):
    """Reads several rows at once, all with the numbers of one."""

    def __getitems__(self, rows):
        return [self[row] for row in rows]


class Plain:
    def __getitems__(self, rows):
        self.asked = rows
        return [row * 10 for row in rows]


@pytest.mark.parametrize("kind", [Augmented, Sliced])
def test_what_a_row_draws_follows_from_seed_epoch_and_row_alone(kind):
    together = Reader(kind(), 7, default_collate)[0, [3, 4, 5]]
    alone = [Reader(kind(), 7, default_collate)[0, [row]].item() for row in (3, 4, 5)]
    assert together.tolist() == alone
    assert Reader(kind(), 7, default_collate)[1, [3]].item() != alone[0]
    assert Reader(kind(), 8, default_collate)[0, [3]].item() != alone[0]


def test_rows_that_draw_nothing_are_read_at_once():
    dataset = Plain()
    assert Reader(dataset, 0, default_collate)[0, (2, 1)].tolist() == [20, 10]
    assert dataset.asked == [2, 1]


def test_plain_tensors_are_cut_through_all_subsets():
    tensors = TensorDataset(torch.arange(10), torch.arange(10) * 2)
    subset = Subset(Subset(tensors, [1, 3, 5, 7]), [3, 0])
    values, doubles = Reader(subset, 0, default_collate)[0, [0, 1]]
    assert (values.tolist(), doubles.tolist()) == ([7, 1], [14, 2])


def test_a_users_own_collate_gets_the_samples():
    tensors = TensorDataset(torch.arange(3))
    assert Reader(tensors, 0, lambda samples: [sample[0].item() for sample in samples])[0, [2, 0]] == [2, 0]

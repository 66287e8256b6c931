"""What is computed for shapes, or again, leaves no trace in running averages."""

import torch
from torch import nn

from raysm.workloads.training.loop.batch_norms import (
    normed_by_averages,
    without_trace,
)

ROWS = torch.arange(8.0).reshape(4, 2)


def model():
    return nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), nn.BatchNorm1d(2, track_running_stats=False))


def test_neither_averages_nor_random_numbers_know_of_a_trial():
    norms, plain = model(), torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    with without_trace(norms, torch.device("cpu")):
        norms(ROWS)
    assert torch.equal(torch.rand(2), torch.rand(2, generator=plain))
    assert norms[0].num_batches_tracked == 0


def test_rows_that_count_for_nothing_are_normed_by_the_averages_and_dropout_goes_on():
    norms = model()
    with normed_by_averages(norms):
        assert not norms[0].training
        assert norms[1].training
        norms[0](ROWS[:1])  # a single row, which could not be normed by itself
    assert norms[0].training
    assert norms[0].num_batches_tracked == 0

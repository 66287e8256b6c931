"""A pipeline sees real rows only, each micro-batch by itself, and averages what its replicas have."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import TensorDataset

from raysm import training
from raysm.training import Parallel
from raysm.workloads.training import session as sessions
from raysm.workloads.training.pipeline import runs

TOLERANCE = 1e-5

SLICE, MICROBATCHES = 16, 4


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_every_row_goes_through_once_in_micro_batches_that_differ_by_one_row_at_most(schedule):
    for rows in range(1, 25):
        parts = runs(rows, 4, Parallel(pipeline=3, schedule=schedule, microbatches=6))
        sizes = [size for count, size in parts for _ in range(count)]
        assert sum(sizes) == rows
        assert max(sizes) <= 4
        assert max(sizes) - min(sizes) <= 1
        assert all(count % 3 == 0 or count < 3 for count, _ in parts if schedule == "interleaved")


def test_a_full_slice_goes_through_in_one_run():
    assert runs(16, 4, Parallel(pipeline=2, microbatches=4)) == [(4, 4)]
    assert runs(9, 4, Parallel(pipeline=2, microbatches=4)) == [(3, 3)]
    assert runs(7, 3, Parallel(pipeline=2, microbatches=4)) == [(1, 3), (2, 2)]


def normed():
    """Return a model whose batch norms keep nothing but the last micro-batch."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8, momentum=1.0))]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 10))


def rows_of(count):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 8, 3, generator=generator)
    return TensorDataset(inputs, torch.randint(10, (count,), generator=generator))


def piped(parallel, count):
    """Train an epoch of ``count`` rows; return the weights and running averages on rank 0."""
    model = normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy)
    for batch in training.batches(rows_of(count), batch_size=SLICE * (parallel.data or 1), epochs=1, shuffle=False):
        training.step(batch)
    return sessions.current().prepared.full_state_dict()


def accumulated(count):
    """Train as ``piped`` does on one worker that adds up the gradients of micro-batches."""
    model, (inputs, target) = normed(), rows_of(count).tensors
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for first in range(0, count, SLICE):
        rows = min(SLICE, count - first)
        parts = -(-rows // (SLICE // MICROBATCHES))
        for part in torch.arange(first, first + rows).tensor_split(parts):
            (F.cross_entropy(model(inputs[part]), target[part]) * len(part) / rows).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("rest", [4, 9, 11])
def test_batch_norms_of_a_short_last_slice_see_its_rows_alone(ranks, schedule, rest):
    parallel = Parallel(pipeline=2, schedule=schedule, microbatches=MICROBATCHES)
    found, wanted = ranks.run(2, piped, parallel, SLICE + rest)[0], accumulated(SLICE + rest)
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        assert float((found[name] - tensor).abs().max()) < TOLERANCE, name


def test_a_row_that_counts_for_nothing_does_not_count_in_running_averages(ranks):
    # The only row of the last batch is replica 2's; rank 0 keeps what its replica saw of the batch before.
    found = ranks.run(4, piped, Parallel(data=2, pipeline=2, microbatches=MICROBATCHES), 2 * SLICE + 1)[0]
    wanted = accumulated(SLICE)
    averages = [name for name in wanted if "running" in name or "tracked" in name]
    assert len(averages) == 12
    for name in averages:
        assert float((found[name] - wanted[name]).abs().max()) < TOLERANCE, name


class Choosing(nn.Module):
    """Uses its second layer for rows that ask for it, and not at all where none does."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes, self.never = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        asked = x[:, 0] > 0
        y = self.always(x)
        return y.index_add(0, asked.nonzero()[:, 0], self.sometimes(x[asked])) if bool(asked.any()) else y


def chosen(parallel):
    """Train two steps on rows of which only those of the second half of each batch ask for the second layer."""
    torch.manual_seed(0)
    model = nn.Sequential(Choosing(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy)
    inputs, target = rows_of(32).tensors
    inputs = inputs[:, :, 0]
    inputs[:, 0] = inputs[:, 0].abs() * torch.tensor([-1.0, 1.0]).repeat_interleave(8).repeat(2)
    for batch in training.batches(TensorDataset(inputs, target), batch_size=16, epochs=1, shuffle=False):
        training.step(batch)
    return sessions.current().prepared.full_state_dict()


def test_replicas_of_a_pipeline_that_use_other_layers_average_them_all_the_same(ranks):
    found = ranks.run(4, chosen, Parallel(data=2, pipeline=2, microbatches=2))[0]
    try:
        wanted = chosen(None)
    finally:
        sessions.end()
    for name, tensor in wanted.items():
        assert float((found[name] - tensor).abs().max()) < TOLERANCE, name

"""A pipeline sees real rows only, each micro-batch by itself; and forward and backward of a whole model."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.engines.full_model import (
    FullModel,
    normed_by_averages,
    sums,
)
from raysm.features.training.cluster.engines.gradients import average, clip
from raysm.features.training.cluster.engines.mean_loss import MeanLoss
from raysm.features.training.cluster.engines.pipeline import UNRETURNED, runs
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.batch import Batch
from raysm.features.training.cluster.loop.session import Session
from raysm.training import Parallel

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


def normed():
    """Return a model whose batch norms keep nothing but the last micro-batch."""
    torch.manual_seed(0)
    layers = [
        layer for _ in range(4) for layer in (nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8, momentum=1.0))
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 10))


def rows_of(count):
    """Return the first ``count`` of always the same rows."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(64, 8, 3, generator=generator)
    return TensorDataset(inputs[:count], torch.randint(10, (64,), generator=generator)[:count])


def piped(parallel, count):
    """Train an epoch of ``count`` rows; return the weights and running averages on rank 0."""
    model = normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy)
    for batch in training.batches(
        rows_of(count), batch_size=SLICE * (parallel.data or 1), epochs=1, shuffle=False
    ):
        training.step(batch)
    return sessions.current().trainer.full_state_dict()


def averages_here(parallel, count):
    """Train as ``piped`` does; return the running averages of this rank's stages."""
    piped(parallel, count)
    return {
        name: tensor.clone() for name, tensor in sessions.current().trainer.parts.named_buffers()
    }


def accumulated(begin, end):
    """Train as ``piped`` does on the rows of one worker that adds up the gradients of micro-batches."""
    model, (inputs, target) = normed(), rows_of(end).tensors
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for first in range(begin, end, SLICE):
        rows = min(SLICE, end - first)
        parts = -(-rows // (SLICE // MICROBATCHES))
        for part in torch.arange(first, first + rows).tensor_split(parts):
            (F.cross_entropy(model(inputs[part]), target[part]) * len(part) / rows).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


RESTS = {"gpipe": 4, "1f1b": 9} | ({"interleaved": 11} if UNRETURNED else {})
"""Rows of the last slice, for each schedule; torch 2.9 is refused for the last."""


@pytest.mark.parametrize(("schedule", "rest"), RESTS.items())
def test_batch_norms_of_a_short_last_slice_see_its_rows_alone(ranks, schedule, rest):
    parallel = Parallel(pipeline=2, schedule=schedule, microbatches=MICROBATCHES)
    found, wanted = ranks.run(2, piped, parallel, SLICE + rest)[0], accumulated(0, SLICE + rest)
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        assert float((found[name] - tensor).abs().max()) < TOLERANCE, name


def test_a_row_that_counts_for_nothing_does_not_count_in_running_averages(ranks):
    # The only row of the last batch is replica 1's; ranks 2 and 3, replica 2, saw the second half
    # of the batch before.
    count = 2 * SLICE + 1
    found = ranks.run(
        4, averages_here, Parallel(data=2, pipeline=2, microbatches=MICROBATCHES), count
    )
    wanted, averages = accumulated(SLICE, 2 * SLICE), found[2] | found[3]
    assert len(averages) == 12
    for name, tensor in averages.items():
        assert float((tensor - wanted[name]).abs().max()) < TOLERANCE, name


class Choosing(nn.Module):
    """Uses its second layer for rows that ask for it, and not at all where none does."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes, self.never = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        asked = x[:, 0] > 0
        y = self.always(x)
        return (
            y.index_add(0, asked.nonzero()[:, 0], self.sometimes(x[asked]))
            if bool(asked.any())
            else y
        )


def chosen(parallel):
    """Train two steps on rows of which only those of the second half of each batch ask for the second layer."""
    torch.manual_seed(0)
    model = nn.Sequential(Choosing(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy)
    inputs, target = rows_of(32).tensors
    inputs = inputs[:, :, 0]
    inputs[:, 0] = inputs[:, 0].abs() * torch.tensor([-1.0, 1.0]).repeat_interleave(8).repeat(2)
    for batch in training.batches(
        TensorDataset(inputs, target), batch_size=16, epochs=1, shuffle=False
    ):
        training.step(batch)
    return sessions.current().trainer.full_state_dict()


def test_replicas_of_a_pipeline_that_use_other_layers_average_them_all_the_same(ranks):
    found = ranks.run(4, chosen, Parallel(data=2, pipeline=2, microbatches=2))[0]
    wanted = chosen(None)
    for name, tensor in wanted.items():
        assert float((found[name] - tensor).abs().max()) < TOLERANCE, name


@pytest.mark.parametrize(
    ("returned", "message"),
    [(torch.zeros(3), r"mean .*\(3,\)"), (None, "mean .*None")],
)
def test_a_metric_that_is_no_number_is_named(returned, message):
    def mean(output, target):
        return returned

    with pytest.raises(InvalidRequest, match=message):
        sums([mean], None, None, 3)


BATCH = (torch.ones(2, 3), torch.zeros(2, 1))


def engine(model, **options):
    session = Session(
        rank=0, world_size=1, local_rank=0, hosts=("algo-1",), device=torch.device("cpu")
    )
    return FullModel(model=model, loss=MeanLoss(functional.mse_loss), session=session, **options)


def test_norms_whose_ranks_exchange_sums_go_on_doing_so_for_a_row_that_does_not_count():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.SyncBatchNorm(2), nn.Dropout())
    with normed_by_averages(model):
        assert [layer.training for layer in model] == [False, True, True]
    assert [layer.training for layer in model] == [True, True, True]


def test_a_parameter_that_ddp_would_wait_for_is_named():
    model = nn.Linear(3, 1)
    averaged = {"weight": model.weight, "unused.bias": nn.Parameter(torch.zeros(1))}
    with pytest.raises(InvalidRequest, match=r"unused\.bias.*unused_parameters=True"):
        engine(model, averaged=averaged).forward_backward(Batch.of(BATCH), 1.0)


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize("accumulate", [2, 8])
def test_the_gradients_of_pieces_add_up_to_those_of_the_whole(accumulate, factor):
    rows = torch.arange(15.0).reshape(5, 3) / 15
    batch = (rows, rows.sum(1, keepdim=True))
    model = nn.Linear(3, 1)
    expected = functional.mse_loss(model(batch[0]), batch[1])
    gradients = torch.autograd.grad(expected * factor, [model.weight, model.bias])
    loss = engine(model, accumulate=accumulate).forward_backward(Batch.of(batch), factor)
    assert float(loss) == pytest.approx(expected.item())
    assert not loss.requires_grad
    for parameter, gradient in zip([model.weight, model.bias], gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_a_piece_without_rows_does_not_move_running_averages():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(8, 1))
    batch = Batch.of((torch.randn(2, 2, 4), torch.zeros(2, 1)))
    engine(model, accumulate=3).forward_backward(batch, 1.0)
    assert model[0].num_batches_tracked == 2
    assert model[0].training


def averaged():
    """Return the gradients of four parameters after averaging over two ranks; each rank lacks some."""
    rank = dist.get_rank()
    both, mine, nobodys, frozen = (nn.Parameter(torch.zeros(2, 3)) for _ in range(4))
    frozen.requires_grad_(False)
    both.grad = torch.full((2, 3), 1.0 + rank)
    if rank == 1:
        mine.grad = torch.full((2, 3), 8.0)
    average([both, frozen, mine, nobodys], dist.group.WORLD)
    return [
        None if item.grad is None else item.grad[0, 0].item()
        for item in (both, mine, nobodys, frozen)
    ]


def test_a_gradient_that_a_replica_has_not_counts_as_0_and_one_that_none_has_stays_away(ranks):
    assert ranks.run(2, averaged) == [[1.5, 4.0, None, None]] * 2


def parameter(*gradient):
    made = nn.Parameter(torch.zeros(len(gradient)))
    made.grad = torch.tensor(gradient)
    return made


@pytest.mark.parametrize("max_norm", [1.0, 5.0, 100.0])
def test_in_one_process_it_clips_as_torch_does(max_norm):
    ours, torchs = ([parameter(3.0, 0.0), parameter(0.0, 4.0)] for _ in range(2))
    frozen = nn.Parameter(torch.zeros(2))
    assert clip([*ours, frozen], max_norm, None) == 5.0
    torch.nn.utils.clip_grad_norm_(torchs, max_norm)
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(ours, torchs, strict=True))

"""Batch norms and the last batch of an epoch."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import InvalidRequest
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.loop.batch_norms import BatchNormCheck
from raysm.workloads.training.loop.position import BatchSlice, DataOrder


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def long():
    return nn.Sequential(nn.Conv1d(4, 8, 1), nn.BatchNorm1d(8), nn.Flatten(), nn.Linear(24, 2))


def evaluating():
    model = flat()
    model[2].eval()
    return model


def train(model, samples, accumulate=1, **options):
    """Train on so many samples of [4, 3]; return the losses."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(samples, 4, 3), torch.arange(samples) % 2)
    model = model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=functional.cross_entropy, accumulate=accumulate)
    return [training.step(batch) for batch in training.batches(data, batch_size=8, epochs=1, **options)]


REFUSED = r"leaves a worker 1 row.*BatchNorm1d \(2\) needs more than one value per channel.*drop_last=True"


def test_a_last_batch_of_one_row_is_refused_before_the_first_step_of_a_model_that_cannot_norm_it():
    with pytest.raises(InvalidRequest, match=REFUSED):
        train(flat, 17)
    assert sessions.current().position.steps == 0


@pytest.mark.parametrize("samples", [17, 18, 19])
def test_a_last_batch_that_leaves_a_rank_one_row_or_none_is_refused_on_all_ranks(ranks, samples):
    results = ranks.run(2, train, flat, samples)
    assert [type(result) for result in results] == [InvalidRequest] * 2
    assert "leaves a worker 1 row" in str(results[1])


@pytest.mark.parametrize(
    ("model", "samples", "options", "steps"),
    [
        (flat, 17, {"drop_last": True}, 2),
        (flat, 18, {}, 3),
        (long, 17, {}, 3),
        (evaluating, 17, {}, 3),
    ],
)
def test_what_a_model_can_norm_is_trained(model, samples, options, steps):
    assert len(train(model, samples, **options)) == steps


def a_slice(fewest_rows):
    order = DataOrder(samples=9, batch_size=4, shuffle=False, seed=0)
    return BatchSlice(order=order, epoch=0, begin=0, end=4, rows=4, share=1.0, slice_rows=4, fewest_rows=fewest_rows)


@pytest.mark.parametrize(
    ("fewest_rows", "values", "is_refused"), [(1, (4, 3), True), (1, (4, 3, 5), False), (2, (4, 3), False)]
)
def test_a_norm_is_refused_only_where_a_single_row_will_give_it_one_value(fewest_rows, values, is_refused):
    session, norms = sessions.begin(), nn.Sequential(nn.BatchNorm1d(3))
    check = BatchNormCheck(session, norms)
    session.position.coming = a_slice(fewest_rows)
    check.on_step_begin(1)
    if is_refused:
        with pytest.raises(InvalidRequest, match=r"leaves a worker 1 row \(9 samples in batches of 4"):
            norms(torch.ones(values))
    else:
        norms(torch.ones(values))
    check.on_step_end(1, 0.0)
    norms(torch.ones(values))  # no step looks any more


def test_a_slice_that_is_computed_in_pieces_leaves_one_row_sooner():
    assert len(train(flat, 18)) == 3
    sessions.end()
    with pytest.raises(InvalidRequest, match="in accumulate=2 pieces"):
        train(flat, 18, accumulate=2)
    assert sessions.current().position.steps == 0

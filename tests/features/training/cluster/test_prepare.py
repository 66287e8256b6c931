"""What ``prepare`` refuses before anything is changed; computing on data that nothing is learned from."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.degrees import Parallel
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.prepare import check_capability, evaluate, prepare


def parts():
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp16"}, "precision .*'fp16'"),
        ({"max_norm": 0.0}, "max_norm .* 0.0"),
        ({"max_norm": float("nan")}, "max_norm .*nan"),
        ({"compile": True, "parallel": Parallel(tensor=2)}, "compile=True .*tensor=2"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"accumulate": 2.0}, "accumulate is 2.0"),
        ({"accumulate": 2, "parallel": Parallel(pipeline=2)}, "accumulate=2: .*microbatches is 8"),
        ({"scheduler": "cosine"}, "scheduler .*'cosine'"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(InvalidRequest, match=message):
        prepare(*parts(), loss=functional.mse_loss, **options)
    assert sessions.current().trainer is None


ROWS = torch.arange(14.0).reshape(7, 2)
DATA = TensorDataset(ROWS, ROWS.sum(1, keepdim=True))


def test_a_scheduler_that_takes_a_metric_is_stepped_by_the_loop_and_kept_in_the_state():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    training.prepare(model, optimizer, loss=functional.mse_loss, scheduler=plateau)
    training.step((ROWS, DATA[:][1]))
    # It grows without bound at this rate, so that the second value is worse than the first.
    plateau.step(evaluate(DATA, batch_size=7)["loss"])
    training.step((ROWS, DATA[:][1]))
    plateau.step(evaluate(DATA, batch_size=7)["loss"])
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert sessions.current().trainer.state()["scheduler"]["num_bad_epochs"] == 0
    assert sessions.current().trainer.state()["scheduler"]["last_epoch"] == 2


def two_rows_left(accumulate):
    """Train a model with batch norms on a batch of eight rows, and on one of two."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=functional.mse_loss, accumulate=accumulate)
    for batch in training.batches(
        TensorDataset(torch.randn(10, 3), torch.ones(10, 1)), batch_size=8
    ):
        training.step(batch)


@pytest.mark.parametrize(("workers", "accumulate"), [(2, 1), (1, 2)])
def test_a_batch_norm_that_gets_one_row_is_named_with_the_batch(ranks, workers, accumulate):
    for refusal in ranks.run(workers, two_rows_left, accumulate):
        assert isinstance(refusal, InvalidInput)
        assert "batch norm" in str(refusal)
        assert f"rows: 2, workers: {workers}" in str(refusal)


@pytest.mark.parametrize(
    ("capability", "is_taken"), [((7, 5), False), ((8, 0), True), ((10, 0), True)]
)
def test_bf16_needs_a_gpu_that_computes_in_it(capability, is_taken):
    with (
        contextlib.nullcontext() if is_taken else pytest.raises(InvalidRequest, match=r"8\.0.*7\.5")
    ):
        check_capability("bf16", capability)
    check_capability("fp32", capability)

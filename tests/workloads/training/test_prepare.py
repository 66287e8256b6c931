"""What ``prepare`` refuses before anything is changed."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm.errors import InvalidRequest
from raysm.workloads.training.degrees import Parallel
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.prepare import prepare


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


def parts():
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp16"}, "precision is 'fp16'; it must be 'fp32' or 'bf16'"),
        ({"max_norm": 0.0}, "max_norm is 0.0; it must be above 0"),
        ({"max_norm": float("nan")}, "max_norm is nan; it must be above 0"),
        ({"compile": True, "parallel": Parallel(tensor=2)}, "compile=True with tensor=2: .* are not compiled; leave"),
        ({"accumulate": 0}, "accumulate is 0; it must be a whole number from 1"),
        ({"accumulate": 2.0}, "accumulate is 2.0; it must be a whole number from 1"),
        ({"accumulate": 2, "parallel": Parallel(pipeline=2)}, r"accumulate=2: a pipeline .* \(microbatches is 8\)"),
        ({"scheduler": "cosine"}, "scheduler is 'cosine'; it must be one of torch.optim.lr_scheduler"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(InvalidRequest, match=message):
        prepare(*parts(), loss=functional.mse_loss, **options)
    assert sessions.current().trainer is None

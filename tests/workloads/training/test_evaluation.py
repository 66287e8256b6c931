"""Computing on data that nothing is learned from."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.workloads.training.evaluation import evaluate
from raysm.workloads.training.loop import session as sessions

ROWS = torch.arange(14.0).reshape(7, 2)
DATA = TensorDataset(ROWS, ROWS.sum(1, keepdim=True))


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


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

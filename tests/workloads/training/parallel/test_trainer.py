"""A model and its optimizer, ready for ``step``, in one process."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm import training
from raysm.workloads.training.loop import session as sessions

BATCH = (torch.ones(2, 3), torch.zeros(2, 1))


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_of_what_the_optimizer_leaves_alone_are_those_of_one_step(accumulate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    # Made before anything else, as by a look for a good rate: of no step of this training.
    functional.mse_loss(model(BATCH[0]), BATCH[1]).backward()
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=functional.mse_loss, max_norm=0.1, accumulate=accumulate)
    steps = torch.optim.SGD(alone[1].parameters(), lr=0.1)
    for _ in range(5):
        sessions.current().trainer.step(BATCH)
        alone.zero_grad()
        functional.mse_loss(alone(BATCH[0]), BATCH[1]).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        steps.step()
    # With what had added up the norm would grow from step to step, and the clipped steps become shorter and shorter.
    for own, others in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own, others)

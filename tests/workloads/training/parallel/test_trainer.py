"""A model and its optimizer, ready for ``step``, in one process."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm import training
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.loop.session import Observer
from raysm.workloads.training.parallel.trainer import Trainer

BATCH = (torch.ones(2, 3), torch.zeros(2, 1))


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


def made(**options):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, loss=functional.mse_loss, **options)
    trainer = sessions.current().trainer
    assert isinstance(trainer, Trainer)
    return trainer


def test_a_step_is_counted_and_observers_hear_of_it_in_their_order():
    heard = []

    class Listening(Observer):
        def on_step_begin(self, step):
            heard.append(("begin", step))

        def on_step_end(self, step, loss):
            heard.append(("end", step, loss))

    trainer = made()
    trainer.session.observers.append(Listening())
    loss = trainer.step(BATCH)
    assert heard == [("begin", 1), ("end", 1, loss)]
    assert trainer.session.position.steps == 1
    assert trainer.model.weight.grad is None


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


def test_a_state_that_is_loaded_is_the_one_that_was_saved():
    one = made()
    one.step(BATCH)
    state = {
        "model": {name: tensor.clone() for name, tensor in one.state()["model"].items()},
        "optimizer": {
            name: value.clone() if torch.is_tensor(value) else value for name, value in one.state()["optimizer"].items()
        },
    }
    losses = [one.step(BATCH) for _ in range(3)]
    sessions.end()
    other = made()
    other.step(BATCH)
    other.load(state)
    assert [other.step(BATCH) for _ in range(3)] == losses


def test_the_whole_model_is_a_copy_in_the_order_of_the_state_dict():
    trainer = made()
    whole = trainer.full_state_dict()
    assert list(whole) == ["weight", "bias"]
    before = whole["weight"].clone()
    trainer.step(BATCH)
    assert torch.equal(whole["weight"], before)

"""The first step after a restart is rehearsed where DDP would else add up otherwise."""

from types import SimpleNamespace

import torch
from torch import nn

from raysm.workloads.training.checkpoint.rehearsal import _Rehearsing, rehearse


class Engine:
    """Draws a random number, moves a buffer and leaves a gradient, as a forward and backward does."""

    def __init__(self, parts):
        self.parts, self.draws = parts, []

    def forward_backward(self, batch, factor):
        self.draws.append(float(torch.rand(())))
        self.parts.running_mean.add_(1.0)
        self.parts.weight.grad = torch.full_like(self.parts.weight, factor)
        return torch.tensor(batch)

    def measure(self, batch, metrics):
        return torch.tensor([2.0, batch])


def prepared():
    parts = nn.BatchNorm1d(2)
    return SimpleNamespace(parts=parts, model=parts, engine=Engine(parts), session=SimpleNamespace(world_size=3))


def test_the_step_is_done_twice_and_counts_once():
    training = prepared()
    engine = training.engine
    training.engine = _Rehearsing(training)
    assert float(training.engine.forward_backward(2.5, 1.0)) == 2.5
    assert len(engine.draws) == 2
    assert engine.draws[0] == engine.draws[1]  # the random generators were put back
    assert training.parts.running_mean.tolist() == [1.0, 1.0]
    assert training.parts.weight.grad.tolist() == [1.0, 1.0]
    assert training.engine is engine  # the next step is done once


def test_an_evaluation_before_the_first_step_is_no_rehearsal():
    training = prepared()
    training.engine = _Rehearsing(training)
    assert training.engine.measure(3.0, []).tolist() == [2.0, 3.0]
    assert isinstance(training.engine, _Rehearsing)


def test_what_is_no_ddp_needs_no_rehearsal():
    training = prepared()
    engine = training.engine
    rehearse(training)
    assert training.engine is engine

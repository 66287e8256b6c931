"""Cutting a model into stages, without processes: the stages called one after the other are the model."""

import copy
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.parallel.stages import balance_stages, partition_stages
from tests.support.parallel_modes import Transformer


def dearest(costs, starts):
    stops = [*starts[1:], len(costs)]
    return max(sum(costs[start:stop]) for start, stop in zip(starts, stops, strict=True))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_no_other_cut_has_a_cheaper_dearest_stage(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    starts = balance_stages(costs, stages)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert len(starts) == stages
    every = (dearest(costs, [0, *cuts]) for cuts in combinations(range(1, len(costs)), stages - 1))
    assert dearest(costs, starts) == min(every)


def through(stages, *inputs):
    for number in range(len(stages)):
        outputs = stages.module(number)(*inputs)
        inputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return outputs


@pytest.mark.parametrize("count", [2, 3, 4])
def test_stages_one_after_the_other_compute_what_the_model_does(count):
    model, x = Transformer(), torch.randn(6, 5, 8)
    stages = partition_stages(model, count, "layers")
    assert torch.equal(through(stages, x), model(x))


@pytest.mark.parametrize(
    ("stages", "blocks", "named"),
    [
        (5, "layers", "5 stages .* 4"),
        (
            2,
            "layer",
            "blocks='layer' .* 'layers', 'layers.0.mlp'",
        ),
        (3, ["layers.1"], " 1 split points .* 3 stages have 2"),
        (2, ["layers.9"], "Transformer .*'layers.9'"),
        (3, ["layers.2", "layers.1"], "'layers.1' .*never reached"),
    ],
)
def test_what_cannot_be_cut_is_refused_before_any_step(stages, blocks, named):
    with pytest.raises(InvalidRequest, match=named):
        partition_stages(Transformer(), stages, blocks)


class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        return self.layers[1](self.layers[0](x)) if x.sum() > 0 else x


class Sizing(Deciding):
    def forward(self, x):
        rows = x.shape[0]
        return self.layers[1](self.layers[0](x)).reshape(rows * 2, 2)


def sharing_a_norm():
    norm = nn.BatchNorm1d(4, affine=False)
    return nn.Sequential(nn.Sequential(nn.Linear(4, 4), norm), nn.Sequential(nn.Linear(4, 4), norm))


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (sharing_a_norm(), r"norm '1\.1' .*stage 1 .*stage 2"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.SyncBatchNorm(4)),
            "'1' .*SyncBatchNorm.* stage 2",
        ),
        (Deciding(), "forward of Deciding .*values of tensors"),
        (Sizing(), "size .* stage 2"),
        (nn.Linear(2, 2), "Linear has no Sequential"),
    ],
)
def test_a_model_that_cannot_be_cut_says_why_and_what_to_do(model, named):
    with pytest.raises(InvalidRequest, match=named):
        partition_stages(model, 2)


BATCH = (torch.ones(2, 3), torch.zeros(2, 1))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_of_what_the_optimizer_leaves_alone_are_those_of_one_step(accumulate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    # Made before anything else, as by a look for a good rate: of no step of this training.
    functional.mse_loss(model(BATCH[0]), BATCH[1]).backward()
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    training.prepare(
        model, optimizer, loss=functional.mse_loss, max_norm=0.1, accumulate=accumulate
    )
    steps = torch.optim.SGD(alone[1].parameters(), lr=0.1)
    for _ in range(5):
        sessions.current().trainer.step(BATCH)
        alone.zero_grad()
        functional.mse_loss(alone(BATCH[0]), BATCH[1]).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        steps.step()
    # With what had added up the norm would grow from step to step, and the clipped steps become
    # shorter and shorter.
    for own, others in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own, others)

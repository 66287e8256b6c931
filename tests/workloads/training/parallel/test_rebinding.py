"""An optimizer keeps every parameter that it was made over, whatever becomes of the model."""

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.optimizers import check_placed, names_of_groups, rebind
from raysm.workloads.training.parallel.parallelize import _merged
from raysm.workloads.training.parallel.stages import partition_stages


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.tanh(self.inner(x))


class Shared(nn.Module):
    """``extra`` is declared first and called last (or not at all), with the parameters of the last block."""

    def __init__(self, is_called=True):
        super().__init__()
        inner = nn.Linear(4, 4)
        self.extra = Block(inner)
        self.layers = nn.Sequential(Block(nn.Linear(4, 4)), Block(inner))
        self.is_called = is_called

    def forward(self, x):
        x = self.layers(x)
        return self.extra(x) if self.is_called else x


def bound(model, optimizer, stages):
    """Return the parameters that the optimizer has for each stage, when it is rebound to it."""
    groups = names_of_groups(optimizer, model)
    found = []
    for number in range(len(stages)):
        rebind(optimizer, groups, _merged([stages.module(number)], list(model.state_dict())), mixed=False)
        found.append([id(parameter) for group in optimizer.param_groups for parameter in group["params"]])
    return found


@pytest.mark.parametrize("is_called", [True, False], ids=["called late", "never called"])
def test_a_parameter_shared_within_a_stage_stays_with_the_optimizer(is_called):
    model = Shared(is_called)
    wanted = [[id(parameter) for parameter in model.layers[number].parameters()] for number in range(2)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    assert bound(model, optimizer, partition_stages(model, 2, "layers")) == wanted


def test_each_group_keeps_its_own_of_a_stage_and_none_twice():
    model = Shared()
    optimizer = torch.optim.SGD(
        [{"params": [model.extra.inner.bias]}, {"params": [model.extra.inner.weight, *model.layers[0].parameters()]}],
        lr=1.0,
    )
    groups = names_of_groups(optimizer, model)
    rebind(
        optimizer,
        groups,
        _merged([partition_stages(model, 2, "layers").module(1)], list(model.state_dict())),
        mixed=False,
    )
    shared = model.layers[1].inner
    assert [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups] == [
        [id(shared.bias)],
        [id(shared.weight)],
    ]


def test_a_parameter_that_no_worker_would_train_is_named():
    model = Shared()
    groups = names_of_groups(torch.optim.SGD(model.parameters(), lr=1.0), model)
    here = [f"layers.0.inner.{leaf}" for leaf in ("weight", "bias")]
    with pytest.raises(InvalidRequest, match=r"extra\.inner\.weight, extra\.inner\.bias would not be trained"):
        check_placed(groups, here)
    check_placed(groups, [*here, "layers.1.inner.weight", "layers.1.inner.bias"])

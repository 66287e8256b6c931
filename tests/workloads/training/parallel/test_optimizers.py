"""What an optimizer keeps of its parameters."""

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.optimizers import (
    check_placed,
    is_stepped,
    names_of_groups,
    rebind,
    renew,
    stateful,
    trained,
)
from raysm.workloads.training.parallel.parallelize import _merged
from raysm.workloads.training.parallel.stages import partition_stages


def stepped(optimizer, model):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
def test_a_state_from_the_beginning_is_no_step(kind):
    model = nn.Linear(2, 1)
    optimizer = kind(model.parameters(), **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    assert not is_stepped(optimizer)
    stepped(optimizer, model)
    assert is_stepped(optimizer)


def test_a_state_that_the_constructor_made_becomes_one_of_the_parameters_as_they_are_now():
    optimizer = torch.optim.Adagrad(nn.Linear(2, 1).parameters(), initial_accumulator_value=0.5)
    cut = nn.Parameter(torch.zeros(1, 1))
    optimizer.param_groups[0]["params"] = [cut]
    renew(optimizer)
    assert list(optimizer.state) == [cut]
    assert optimizer.state[cut]["sum"].tolist() == [[0.5]]


def test_an_optimizer_that_cannot_be_made_again_is_refused():
    class Odd(torch.optim.SGD):
        def __init__(self, parameters, secret):
            super().__init__(parameters, lr=0.1)
            self.state[self.param_groups[0]["params"][0]] = {"momentum": torch.zeros(1)}

    with pytest.raises(InvalidRequest, match="the optimizer Odd makes its state when it is made"):
        renew(Odd(nn.Linear(2, 1).parameters(), "x"))


GROUPS = ["param_groups.weight.lr", "param_groups.bias.lr"]


@pytest.mark.parametrize(
    ("states", "names"),
    [
        (["state.weight.step", "state.weight.sum", "state.bias.step"], {"weight", "bias"}),
        (["state.bias.step"], {"bias"}),
        (["state.weight.factors.0.left"], {"weight"}),
        ([], set()),
    ],
)
def test_the_names_of_a_checkpoint_tell_which_parameters_have_a_state(states, names):
    assert stateful([*GROUPS, *states]) == names


def test_what_has_a_state_is_trained_while_torch_looks_and_is_as_it_was_again_even_where_that_fails():
    model = nn.Linear(2, 1)
    model.bias.requires_grad = False

    def look():
        with trained(model, {"bias"}):
            assert (model.weight.requires_grad, model.bias.requires_grad) == (False, True)
            raise KeyError("bias")

    with pytest.raises(KeyError):
        look()
    assert (model.weight.requires_grad, model.bias.requires_grad) == (True, False)


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

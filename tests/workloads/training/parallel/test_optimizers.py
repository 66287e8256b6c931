"""What an optimizer keeps of its parameters."""

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.optimizers import (
    check_placed,
    is_stepped,
    names_of_groups,
    renew,
)


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


def test_a_parameter_that_no_worker_would_train_is_named():
    model = Shared()
    groups = names_of_groups(torch.optim.SGD(model.parameters(), lr=1.0), model)
    here = [f"layers.0.inner.{leaf}" for leaf in ("weight", "bias")]
    with pytest.raises(InvalidRequest, match=r"extra\.inner\.weight, extra\.inner\.bias would not be trained"):
        check_placed(groups, here)
    check_placed(groups, [*here, "layers.1.inner.weight", "layers.1.inner.bias"])

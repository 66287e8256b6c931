"""What an optimizer keeps of its parameters."""

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.optimizer_state import forget_others, is_stepped, readable, renew


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


ENTRIES = {"param_groups.weight.lr": 0.1, "param_groups.bias.lr": 0.1, "state.weight.step": 1, "state.bias.step": 1}


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (ENTRIES.keys(), set(ENTRIES)),
        (ENTRIES.keys() - {"state.bias.step"}, set(ENTRIES) - {"state.bias.step"}),
        # None of any parameter: another optimizer's, which then says so.
        ({"param_groups.weight.lr", "param_groups.bias.lr"}, set(ENTRIES)),
    ],
)
def test_a_parameter_that_had_no_state_is_not_asked_for_one(there, asked):
    assert set(readable(ENTRIES, there)) == asked


def test_a_parameter_without_a_state_in_the_checkpoint_gets_an_empty_one():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    stepped(optimizer, model)
    forget_others(optimizer, model, ["param_groups.weight.lr", "param_groups.bias.lr", "state.weight.step"])
    assert optimizer.state[model.bias] == {}
    assert set(optimizer.state[model.weight]) == {"step", "exp_avg", "exp_avg_sq"}

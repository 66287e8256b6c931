"""What an optimizer keeps of its parameters."""

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.optimizers import (
    renew,
)


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

"""Forward and backward of a whole model."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm.errors import InvalidRequest
from raysm.workloads.training.engines.full_model import FullModel, autocast

BATCH = (torch.ones(2, 3), torch.zeros(2, 1))


def engine(model, **options):
    return FullModel(model=model, loss=functional.mse_loss, device=torch.device("cpu"), **options)


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.0])
def test_gradients_are_weighed_and_the_loss_is_not(factor):
    model = nn.Linear(3, 1)
    expected = functional.mse_loss(model(BATCH[0]), BATCH[1])
    (gradient,) = torch.autograd.grad(expected * factor, [model.bias])
    assert torch.equal(engine(model).forward_backward(BATCH, factor), expected.detach())
    assert torch.equal(model.bias.grad, gradient)


def test_a_rank_that_shares_its_slice_accounts_for_no_loss():
    model = nn.Linear(3, 1)
    assert engine(model, counts=False).forward_backward(BATCH, 1.0) == 0
    assert model.weight.grad is not None


def test_a_parameter_that_ddp_would_wait_for_is_named():
    model = nn.Linear(3, 1)
    averaged = {"weight": model.weight, "unused.bias": nn.Parameter(torch.zeros(1))}
    with pytest.raises(InvalidRequest, match="does not depend on unused.bias, whose gradients DDP waits for"):
        engine(model, averaged=averaged).forward_backward(BATCH, 1.0)


def test_products_are_computed_in_the_precision_that_is_asked_for():
    with autocast(torch.device("cpu"), torch.bfloat16):
        assert nn.Linear(3, 1)(BATCH[0]).dtype == torch.bfloat16
    with autocast(torch.device("cpu"), None):
        assert nn.Linear(3, 1)(BATCH[0]).dtype == torch.float32

"""Forward and backward of a whole model."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm.errors import InvalidRequest
from raysm.workloads.training.engines.full_model import FullModel, sums


@pytest.mark.parametrize(
    ("returned", "message"),
    [(torch.zeros(3), r"mean returned a tensor of shape \(3,\); return one number"), (None, "mean returned None")],
)
def test_a_metric_that_is_no_number_is_named(returned, message):
    def mean(output, target):
        return returned

    with pytest.raises(InvalidRequest, match=message):
        sums([mean], None, None, 3)


BATCH = (torch.ones(2, 3), torch.zeros(2, 1))


def engine(model, **options):
    return FullModel(model=model, loss=functional.mse_loss, device=torch.device("cpu"), **options)


def test_a_parameter_that_ddp_would_wait_for_is_named():
    model = nn.Linear(3, 1)
    averaged = {"weight": model.weight, "unused.bias": nn.Parameter(torch.zeros(1))}
    with pytest.raises(InvalidRequest, match="does not depend on unused.bias, whose gradients DDP waits for"):
        engine(model, averaged=averaged).forward_backward(BATCH, 1.0)


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize("accumulate", [2, 8])
def test_the_gradients_of_pieces_add_up_to_those_of_the_whole(accumulate, factor):
    rows = torch.arange(15.0).reshape(5, 3) / 15
    batch = (rows, rows.sum(1, keepdim=True))
    model = nn.Linear(3, 1)
    expected = functional.mse_loss(model(batch[0]), batch[1])
    gradients = torch.autograd.grad(expected * factor, [model.weight, model.bias])
    loss = engine(model, accumulate=accumulate).forward_backward(batch, factor)
    assert float(loss) == pytest.approx(expected.item())
    assert not loss.requires_grad
    for parameter, gradient in zip([model.weight, model.bias], gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_a_piece_without_rows_does_not_move_running_averages():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(8, 1))
    engine(model, accumulate=3).forward_backward((torch.randn(2, 2, 4), torch.zeros(2, 1)), 1.0)
    assert model[0].num_batches_tracked == 2
    assert model[0].training

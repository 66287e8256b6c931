"""Who steps a scheduler, and which are refused."""

import pytest
import torch
from torch.optim import lr_scheduler

from raysm.errors import InvalidRequest
from raysm.workloads.training.loop.learning_rate import check_scheduler, needs_metric


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


SCHEDULERS = {
    "cosine": lambda own: lr_scheduler.CosineAnnealingLR(own, 4),
    "sequence": lambda own: lr_scheduler.SequentialLR(
        own, [lr_scheduler.ConstantLR(own), lr_scheduler.ExponentialLR(own, 0.9)], [2]
    ),
    "chain": lambda own: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(own)]),
    "plateau": lr_scheduler.ReduceLROnPlateau,
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedulers_of_torch_are_taken_and_one_alone_waits_for_a_metric(kind):
    own = optimizer()
    scheduler = SCHEDULERS[kind](own)
    check_scheduler(scheduler, own)
    assert needs_metric(scheduler) == (kind == "plateau")


def test_that_of_another_optimizer_is_refused():
    with pytest.raises(InvalidRequest, match="a CosineAnnealingLR, steps the rate of another optimizer"):
        check_scheduler(SCHEDULERS["cosine"](optimizer()), optimizer())


@pytest.mark.parametrize("scheduler", ["cosine", lr_scheduler.StepLR, object()])
def test_what_is_no_scheduler_is_refused(scheduler):
    with pytest.raises(InvalidRequest, match="must be one of torch.optim.lr_scheduler"):
        check_scheduler(scheduler, optimizer())

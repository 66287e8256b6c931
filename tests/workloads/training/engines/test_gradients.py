"""Gradients of replicas become their mean."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from raysm.workloads.training.engines.gradients import average, clip


def averaged():
    """Return the gradients of four parameters after averaging over two ranks; each rank lacks some."""
    rank = dist.get_rank()
    both, mine, nobodys, frozen = (nn.Parameter(torch.zeros(2, 3)) for _ in range(4))
    frozen.requires_grad_(False)
    both.grad = torch.full((2, 3), 1.0 + rank)
    if rank == 1:
        mine.grad = torch.full((2, 3), 8.0)
    average([both, frozen, mine, nobodys], dist.group.WORLD)
    return [None if item.grad is None else item.grad[0, 0].item() for item in (both, mine, nobodys, frozen)]


def test_a_gradient_that_a_replica_has_not_counts_as_0_and_one_that_none_has_stays_away(ranks):
    assert ranks.run(2, averaged) == [[1.5, 4.0, None, None]] * 2


def parameter(*gradient):
    made = nn.Parameter(torch.zeros(len(gradient)))
    made.grad = torch.tensor(gradient)
    return made


@pytest.mark.parametrize("max_norm", [1.0, 5.0, 100.0])
def test_in_one_process_it_clips_as_torch_does(max_norm):
    ours, torchs = ([parameter(3.0, 0.0), parameter(0.0, 4.0)] for _ in range(2))
    frozen = nn.Parameter(torch.zeros(2))
    assert clip([*ours, frozen], max_norm, None) == 5.0
    torch.nn.utils.clip_grad_norm_(torchs, max_norm)
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(ours, torchs, strict=True))

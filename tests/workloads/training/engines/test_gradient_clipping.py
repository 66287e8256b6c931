"""Gradients whose norm is too long are scaled down, whichever rank has them."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from raysm.workloads.training.engines.gradients import clip


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


def clipped():
    """Clip a model whose stages are two ranks, of which the second has no gradient."""
    own = [parameter(3.0, 4.0)] if dist.get_rank() == 0 else [nn.Parameter(torch.zeros(2))]
    norm = float(clip(own, 1.0, dist.group.WORLD))
    return norm, None if own[0].grad is None else own[0].grad.tolist()


def test_the_norm_is_that_of_all_stages_and_a_frozen_one_takes_part(ranks):
    (norm, gradient), (other_norm, none) = ranks.run(2, clipped)
    assert (norm, other_norm, none) == (5.0, 5.0, None)
    assert gradient == pytest.approx([0.6, 0.8], rel=1e-5)


def test_a_copy_that_another_rank_counts_is_scaled_and_not_counted():
    own, copy = parameter(3.0, 4.0), parameter(8.0, 6.0)
    assert clip([own, copy], 1.0, None, [copy]) == 5.0
    assert own.grad.tolist() + copy.grad.tolist() == pytest.approx([0.6, 0.8, 1.6, 1.2], rel=1e-5)

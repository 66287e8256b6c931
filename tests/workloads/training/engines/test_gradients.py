"""Gradients of replicas become their mean."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from raysm.workloads.training.engines.gradients import BUCKET_BYTES, _buckets, add_up, average, clip


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


def test_messages_are_of_one_type_and_of_bounded_size():
    large = nn.Parameter(torch.empty(BUCKET_BYTES // 4 + 1, device="meta"))
    small = [nn.Parameter(torch.empty(10, device="meta")) for _ in range(3)]
    half = nn.Parameter(torch.empty(10, dtype=torch.bfloat16, device="meta"))
    buckets = _buckets([*small, half, large, *small])
    assert [len(bucket) for bucket in buckets] == [3, 1, 1, 3]


def added():
    """Return the gradients of two copies after adding up over two ranks, of which one lacks the second."""
    rank = dist.get_rank()
    both, mine = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    both.grad = torch.full((2,), 1.0 + rank)
    if rank == 1:
        mine.grad = torch.full((2,), 8.0)
    add_up([both, mine], dist.group.WORLD)
    return both.grad.tolist(), mine.grad.tolist()


def test_gradients_of_copies_add_up(ranks):
    assert ranks.run(2, added) == [([3.0, 3.0], [8.0, 8.0])] * 2


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

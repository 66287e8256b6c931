"""Gradients are made shorter where they are longer than allowed, by the length that all ranks' parts have together.

What flows in are this rank's parameters, with gradients that are already averaged; what flows out are the same
gradients, all multiplied by the same number on every rank (Pascanu et al. 2013, arXiv 1211.5063).
"""

import itertools
from collections.abc import Collection, Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.utils import get_total_norm

__all__ = ["clip"]

SMALL = 1e-6
"""Added to the norm that is divided by, as ``torch.nn.utils.clip_grad_norm_`` does."""


@torch.no_grad()
def clip(
    parameters: Iterable[nn.Parameter],
    max_norm: float,
    stages: "dist.ProcessGroup | None",
    copies: Collection[nn.Parameter] = (),
) -> torch.Tensor:
    """Scale all gradients so that their 2-norm over the whole model is at most ``max_norm``; return what it was.

    Every rank has to call it. A parameter that several ranks have as a whole counts once.

    Args:
        parameters: This rank's.
        max_norm: Above 0.
        stages: The ranks that have the other stages of this one's pipeline; None without a pipeline.
        copies: Those of ``parameters`` that another of these ranks has, too, and counts.
    """
    # By identity: parameters compare entry by entry.
    others = {id(parameter) for parameter in copies}
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    is_counted = [id(parameter) not in others for parameter in trained]
    grads = [parameter.grad for parameter in trained if parameter.grad is not None]
    parts = [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]
    # Parts that lie over the same ranks in one sum each: the order is that of the parameters, alike on those ranks.
    alike: dict[tuple[DeviceMesh, tuple[int, ...]] | None, list[torch.Tensor]] = {}
    for grad, part in itertools.compress(zip(grads, parts, strict=True), is_counted):
        where, counted = _cut(grad) if isinstance(grad, DTensor) else (None, part)
        alike.setdefault(where, []).append(counted)
    device = parts[0].device if parts else _device(stages)
    square = torch.zeros((), device=device)
    for where, tensors in alike.items():
        square_here = get_total_norm(tensors).float().square()
        if where is not None:
            mesh, dimensions = where
            for dimension in dimensions:
                dist.all_reduce(square_here, group=mesh.get_group(dimension))
        square += square_here
    if stages is not None:
        dist.all_reduce(square, group=stages)
    norm = square.sqrt()
    if parts:
        # Not "if norm > max_norm": on a GPU the step would wait for the answer.
        torch._foreach_mul_(parts, (max_norm / (norm + SMALL)).clamp(max=1.0))
    return norm


def _cut(grad: DTensor) -> tuple[tuple[DeviceMesh, tuple[int, ...]] | None, torch.Tensor]:
    """Return over which dimensions of its mesh a gradient is cut, None if it is whole; and this rank's part."""
    if any(placement.is_partial() for placement in grad.placements):  # sums that are still to be made
        grad = grad.redistribute(
            placements=[Replicate() if placement.is_partial() else placement for placement in grad.placements]
        )
    cut = tuple(number for number, placement in enumerate(grad.placements) if not placement.is_replicate())
    return ((grad.device_mesh, cut) if cut else None), grad.to_local()


def _device(stages: "dist.ProcessGroup | None") -> torch.device:
    """Return where a rank without gradients, a stage that is frozen, takes part in the others' sum."""
    on_gpu = stages is not None and dist.get_backend(stages) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

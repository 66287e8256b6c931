"""Gradients before the optimizer's step: averaged, summed over tied copies, and clipped."""

import itertools
from collections.abc import Collection, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.utils import get_total_norm

BUCKET_BYTES = 25 << 20


def average(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Average gradients over replicas.

    A missing gradient counts as 0, and stays missing if no replica has it.
    """
    _reduce(parameters, group, group.size())


def add_up(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    _reduce(parameters, group, 1)


@torch.no_grad()
def _reduce(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, divisor: int) -> None:
    """Sum over the group in messages of about 25 MB, as DDP does.

    A message for each gradient would take longer.
    """
    buckets = _buckets([parameter for parameter in parameters if parameter.requires_grad])
    # All messages are sent before the first is awaited, so that the network never waits for the
    # next one. Gradients that are offloaded to the CPU are not where NCCL sends from.
    messages = [_message(bucket).to(_device(group)) for bucket in buckets]
    for work in [dist.all_reduce(message, group=group, async_op=True) for message in messages]:
        work.wait()
    for bucket, message in zip(buckets, messages, strict=True):
        # Divided after the sum, once for a whole message.
        message.div_(divisor)
        *means, owners = torch.split(
            message, [*(_local(parameter).numel() for parameter in bucket), len(bucket)]
        )
        for number, (parameter, mean) in enumerate(zip(bucket, means, strict=True)):
            if parameter.grad is None:
                if not owners[number]:
                    continue
                parameter.grad = torch.zeros_like(parameter)
            grad = _local(parameter.grad)
            grad.copy_(mean.view_as(grad))


def _buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    buckets: list[list[nn.Parameter]] = []
    room = 0
    for parameter in parameters:
        size = _local(parameter).nbytes
        # A message has one type; cast to another, gradients would change.
        if room < size or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(parameter)
        room -= size
    return buckets


def _message(bucket: Sequence[nn.Parameter]) -> torch.Tensor:
    """Return the gradients and, for each, 1 if this replica has it.

    Messages then have the same shape on all replicas.
    """
    pairs = [(parameter, parameter.grad) for parameter in bucket]
    grads = [torch.zeros_like(_local(own)) if grad is None else _local(grad) for own, grad in pairs]
    owners = [float(parameter.grad is not None) for parameter in bucket]
    return torch.cat([*(grad.reshape(-1) for grad in grads), grads[0].new_tensor(owners)])


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


SMALL = 1e-6
"""Added to the norm that is divided by, as ``torch.nn.utils.clip_grad_norm_`` does."""


@torch.no_grad()
def clip(
    parameters: Iterable[nn.Parameter],
    max_norm: float,
    stages: "dist.ProcessGroup | None",
    copies: Collection[nn.Parameter] = (),
) -> torch.Tensor:
    """Scale all gradients to a 2-norm over the whole model of at most ``max_norm``.

    Return the norm that they had before. Every rank must call this function. A parameter of several
    ranks counts once: ``copies`` are the parameters that another rank counts.
    """
    # Compared by identity, because ``==`` of parameters compares entry by entry.
    others = {id(parameter) for parameter in copies}
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    is_counted = [id(parameter) not in others for parameter in trained]
    grads = [parameter.grad for parameter in trained if parameter.grad is not None]
    parts = [grad.to_local() if isinstance(grad, DTensor) else grad for grad in grads]
    # One sum for parts that lie over the same ranks, in the order of the parameters, which is the
    # same on those ranks.
    alike: dict[tuple[DeviceMesh, tuple[int, ...]] | None, list[torch.Tensor]] = {}
    for grad, part in itertools.compress(zip(grads, parts, strict=True), is_counted):
        where, counted = _describe_split(grad) if isinstance(grad, DTensor) else (None, part)
        alike.setdefault(where, []).append(counted)
    device = parts[0].device if parts else _device(stages)
    square = torch.zeros((), device=device)
    for where, tensors in alike.items():
        square_here = get_total_norm(tensors).float().square()
        if where is not None:
            mesh, dimensions = where
            for dimension in dimensions:
                square_here = _add_over(square_here, mesh.get_group(dimension))
        square += square_here
    if stages is not None:
        square = _add_over(square, stages)
    norm = square.sqrt()
    if parts:
        # Not "if norm > max_norm": on a GPU the step would wait for the answer.
        torch._foreach_mul_(parts, (max_norm / (norm + SMALL)).clamp(max=1.0))
    return norm


def _add_over(number: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    # Gradients that are offloaded to the CPU are not where NCCL sends from.
    message = number.to(_device(group))
    dist.all_reduce(message, group=group)
    return message.to(number.device)


def _describe_split(
    grad: DTensor,
) -> tuple[tuple[DeviceMesh, tuple[int, ...]] | None, torch.Tensor]:
    """Return how a gradient is cut, and this rank's part of it.

    The first value is the gradient's mesh and the dimensions over which it is cut; None if it is
    not cut.
    """
    # Sums that are still to be made.
    if any(placement.is_partial() for placement in grad.placements):
        grad = grad.redistribute(
            placements=[
                Replicate() if placement.is_partial() else placement
                for placement in grad.placements
            ]
        )
    cut = tuple(
        number for number, placement in enumerate(grad.placements) if not placement.is_replicate()
    )
    return ((grad.device_mesh, cut) if cut else None), grad.to_local()


def _device(group: "dist.ProcessGroup | None") -> torch.device:
    """Return the device from which a group sends."""
    on_gpu = group is not None and dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

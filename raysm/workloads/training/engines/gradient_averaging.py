"""Gradients that DDP does not know: averaged over the replicas of a pipeline's stages, added up over tied copies.

What flows in are this rank's parameters, with the gradients of its own rows, or of its own stages; what flows out are
the same parameters, with the mean over all replicas, or the sum over all copies.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

__all__ = ["add_up", "average"]

BUCKET_BYTES = 25 << 20


def average(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Average the gradients over the group.

    A replica whose rows did not come by a parameter has no gradient of it, which counts as 0; where no replica has one,
    there is none afterwards either.

    Args:
        parameters: The same on every rank of the group; frozen ones are passed over.
        group: The replicas.
    """
    _reduce(parameters, group, group.size())


def add_up(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Put the sum over the group in the place of the gradients; what is said of ``average`` holds here, too.

    Args:
        parameters: The same on every rank of the group.
        group: The ranks that have a copy.
    """
    _reduce(parameters, group, 1)


@torch.no_grad()
def _reduce(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, divisor: int) -> None:
    """Sum over the group in messages of some 25 MB, as DDP does: many small ones would wait long."""
    buckets = _buckets([parameter for parameter in parameters if parameter.requires_grad])
    # All are on their way before the first is awaited: the network works while the next is put together.
    messages = [_message(bucket) for bucket in buckets]
    for work in [dist.all_reduce(message, group=group, async_op=True) for message in messages]:
        work.wait()
    for bucket, message in zip(buckets, messages, strict=True):
        # After the sum: one division for a whole message.
        message.div_(divisor)
        *means, owners = torch.split(message, [*(_local(parameter).numel() for parameter in bucket), len(bucket)])
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
    """Return the gradients and, for each, 1 if this replica has it: messages have to be alike on all replicas."""
    grads = [
        torch.zeros_like(_local(parameter)) if parameter.grad is None else _local(parameter.grad)
        for parameter in bucket
    ]
    owners = [float(parameter.grad is not None) for parameter in bucket]
    return torch.cat([*(grad.reshape(-1) for grad in grads), grads[0].new_tensor(owners)])


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

"""Forward and backward of a model that is cut into stages, by torch's own schedules of micro-batches.

What flows in is a data rank's slice of a batch, the same on every rank of the pipeline; what flows out is its loss, on
the rank that has the last stage. A slice smaller than the first one is padded with rows that count for nothing, since
the stages' messages keep their shapes.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from raysm.errors import InvalidInput
from raysm.workloads.training.parallel import Parallel
from raysm.workloads.training.session import Session
from raysm.workloads.training.whole import Loss, autocast, inputs_and_target, on_device

__all__ = ["Pipeline", "stage_numbers"]

BUCKET_BYTES = 25 << 20


def stage_numbers(parallel: Parallel, place: int) -> range:
    """Return the stages of one rank of the pipeline: with several per worker, one of each round."""
    return range(place, parallel.stages, parallel.pipeline)


class Pipeline:
    """The engine of pipelines."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        *,
        parallel: Parallel,
        place: int,
        group: dist.ProcessGroup,
        replicas: dist.ProcessGroup | None,
        loss: Loss,
        session: Session,
        precision: torch.dtype | None,
        counts: bool,
    ) -> None:
        """Build the schedule.

        Args:
            modules: This rank's stages, in their order.
            parallel: Degrees, schedule and micro-batches.
            place: Of this rank in the pipeline.
            group: The ranks of the pipeline, in its order.
            replicas: The ranks with the same stages, whose gradients are averaged; None if something else does it.
            loss: Of an output and a target, the mean over the rows.
            session: For the rows of a full slice.
            precision: Type of the matrix products; None is the parameters' own.
            counts: Whether this pipeline accounts for its slice's loss: one of those that share a slice does.
        """
        self._loss, self._session, self._precision, self._counts = loss, session, precision, counts
        self._modules, self._replicas = modules, replicas
        self._microbatches = parallel.microbatch_count
        self._full_rows: int | None = None
        self._rows = 0
        self._factor = 1.0
        self._target: Any = None
        numbers = stage_numbers(parallel, place)
        self._is_first, self._is_last = 0 in numbers, parallel.stages - 1 in numbers
        stages: list[Any] = [
            PipelineStage(module, number, parallel.stages, session.device, group=group)
            for module, number in zip(modules, numbers, strict=True)
        ]
        if parallel.schedule == "interleaved":
            self._schedule: Any = ScheduleInterleaved1F1B(stages, self._microbatches, loss_fn=self._loss_of_rows)
        else:
            kind = ScheduleGPipe if parallel.schedule == "gpipe" else Schedule1F1B
            self._schedule = kind(stages[0], self._microbatches, loss_fn=self._loss_of_rows)

    def forward_backward(self, batch: Any, factor: float) -> torch.Tensor:
        """Add the gradients of ``factor`` x the loss; return the loss on one rank of the last stage, 0 on the others.

        Raises:
            InvalidInput: The slice's rows do not divide into micro-batches, or it has more than the first one.
        """
        inputs, self._target = inputs_and_target(on_device(batch, self._session.device))
        self._rows, self._factor = len(pytree.tree_leaves(inputs)[0]), factor
        full = self._full_slice()
        inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: _padded(tensor, full), inputs)
        losses: list[torch.Tensor] = []
        # The schedule cuts tensors only: it gets the numbers of the rows, by which the loss finds its targets.
        rows = torch.arange(full) if self._is_last else None
        self._schedule.step(*(inputs if self._is_first else ()), target=rows, losses=losses, return_outputs=False)
        if self._replicas is not None:
            _average([parameter for module in self._modules for parameter in module.parameters()], self._replicas)
        if not (self._is_last and self._counts and factor):
            return torch.zeros((), device=self._session.device)
        return torch.stack([loss.detach() for loss in losses]).mean() / factor

    def _loss_of_rows(self, output: Any, rows: torch.Tensor) -> torch.Tensor:
        """Return the loss of a micro-batch, weighed so that the mean over the micro-batches is that over all rows."""
        first, size = int(rows[0]), len(rows)
        real = max(0, min(size, self._rows - first))
        if real == 0:
            return torch.stack([leaf.sum() * 0.0 for leaf in pytree.tree_leaves(output)]).sum()
        output, target = _rows(output, 0, real), _rows(self._target, first, real)
        with autocast(self._session.device, self._precision):
            loss = self._loss(output, target)
        return loss * (self._factor * real * self._microbatches / self._rows)

    def _full_slice(self) -> int:
        """Return the rows of a full slice: told by ``batches``, else those of the first batch."""
        if self._full_rows is None:
            self._full_rows = self._session.slice_rows or self._rows
            if self._full_rows % self._microbatches:
                raise InvalidInput(
                    f"a slice of {self._full_rows} rows does not divide into microbatches={self._microbatches}; change "
                    "the batch size or microbatches"
                )
        if self._rows > self._full_rows:
            raise InvalidInput(
                f"a slice has {self._rows} rows, the first one had {self._full_rows}: a pipeline's batches may become "
                "smaller, not larger"
            )
        return self._full_rows


def _average(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Average the gradients over the group, in messages of some 25 MB, as DDP does: many small ones would wait long."""
    buckets: list[list[torch.Tensor]] = []
    room = 0
    for parameter in parameters:
        if parameter.grad is None:
            continue
        grad = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
        if room < grad.nbytes or grad.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(grad)
        room -= grad.nbytes
    flat = [torch.cat([grad.reshape(-1) for grad in bucket]) for bucket in buckets]
    for work in [dist.all_reduce(message, group=group, async_op=True) for message in flat]:
        work.wait()
    for bucket, message in zip(buckets, flat, strict=True):
        parts = torch.split(message.div_(group.size()), [grad.numel() for grad in bucket])
        for grad, part in zip(bucket, parts, strict=True):
            grad.copy_(part.view_as(grad))


def _rows(value: Any, first: int, count: int) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[first : first + count], value)


def _padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """Repeat the last row until there are ``rows``."""
    missing = rows - len(tensor)
    return torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) if missing else tensor

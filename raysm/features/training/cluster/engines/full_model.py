"""Forward and backward of one step: what all modes share, and the engine of most of them.

Only pipelines have an engine of their own. Evaluations and repeated computations must leave the
running averages of norms as they are; the functions for that are here too.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.batchnorm import _NormBase

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.engines.mean_loss import MeanLoss, zero_of
from raysm.features.training.cluster.engines.unused import UnusedParameters
from raysm.features.training.cluster.loop.batch import Batch
from raysm.features.training.cluster.loop.session import Session

Metric: TypeAlias = Callable[[Any, Any], Any]
"""(output, target) -> the mean over the rows, a number or a tensor of one; or the pair (mean, what
it divides by)."""


def no_sums(metrics: Sequence[Metric]) -> torch.Tensor:
    return torch.zeros(len(metrics), 2, dtype=torch.float64)


def sums(metrics: Sequence[Metric], output: Any, target: Any, rows: int) -> torch.Tensor:
    """Return the sum of each metric, and its divisor: float64[metrics, 2] on the CPU.

    The mean is the sum over the divisor.
    """
    # float64, because a float32 counts rows exactly only up to 16 million.
    found = no_sums(metrics)
    for number, metric in enumerate(metrics):
        mean = metric(output, target)
        divisor: Any = rows
        if isinstance(mean, tuple) and len(mean) == 2:
            mean, divisor = mean
        weight = _number(metric, divisor)
        # The mean over nothing is NaN, whose product with 0 would be NaN.
        if weight != 0:
            found[number] = torch.tensor(
                [_number(metric, mean) * weight, weight], dtype=torch.float64
            )
    return found


def _number(metric: Metric, value: Any) -> float:
    if torch.is_tensor(value):
        if value.numel() != 1:
            raise InvalidRequest(
                f"training.evaluate: {_name(metric)} returned a tensor of shape "
                f"{tuple(value.shape)}; return one number"
            )
        return float(value.item())
    # Numbers of NumPy and of scikit-learn's functions are taken as they are.
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"training.evaluate: {_name(metric)} returned {value!r}, which is no number"
        ) from error


def _name(metric: Metric) -> str:
    return getattr(metric, "__name__", type(metric).__name__)


class Engine(Protocol):
    def forward_backward(self, batch: Batch, factor: float) -> torch.Tensor:
        """Add the gradients of ``factor`` x the loss; return the loss of this data rank's slice.

        The loss is 0 if it is not used. Ranks that do not have the loss, or whose slice another
        rank accounts for, return 0.
        """

    def metric_sums(self, batch: Batch, metrics: Sequence[Metric]) -> torch.Tensor:
        """Return the sums of the metrics over the rows of this data rank's slice, as ``sums`` does.

        Ranks that do not have the outputs, or whose slice another rank accounts for, return zeros.
        Called without gradients, in evaluation mode.
        """


@dataclass(kw_only=True, slots=True)
class FullModel:
    model: nn.Module
    loss: MeanLoss
    session: Session
    precision: torch.dtype | None = None
    counts: bool = True
    """This rank accounts for its slice's loss; one of the ranks that share a slice must do so."""
    averaged: Mapping[str, nn.Parameter] = field(default_factory=dict)
    """The parameters that DDP averages, by name: it waits for each of them in every backward
    pass."""

    inner: nn.Module | None = None
    """The model without the wrapper that replicates it, for evaluation; None means ``model``."""
    accumulate: int = 1
    keeps_gradients: bool = False
    """Shards reduce the sum of the gradients of all pieces once, and keep them whole until then."""
    unused: UnusedParameters | None = None
    """If ranks with shards use different parameters."""

    def forward_backward(self, batch: Batch, factor: float) -> torch.Tensor:
        batch = batch.on(self.session.device)
        # A rank without rows of its own computes one that does not count.
        is_spare = self.session.share == 0
        with normed_by_averages(self.model) if is_spare else contextlib.nullcontext():
            loss = (
                self._add(batch, factor)
                if self.accumulate == 1
                else self._add_in_pieces(batch, factor)
            )
        # Checked here, where they have names: DDP would wait for them in the next step, and name an
        # index.
        missing = [name for name, parameter in self.averaged.items() if parameter.grad is None]
        if missing:
            raise InvalidRequest(
                f"the loss does not depend on {', '.join(missing)}, whose gradients DDP waits for: "
                "freeze them by requires_grad_(False) before prepare, or, if other rows use them, "
                "train by Parallel(unused_parameters=True)"
            )
        if self.unused is not None:
            self.unused.remove_gradients(is_spare=is_spare)
        # All ranks of a tensor group have the same loss; the sum over all ranks must have it once.
        return loss if self.counts else torch.zeros_like(loss)

    def metric_sums(self, batch: Batch, metrics: Sequence[Metric]) -> torch.Tensor:
        batch = batch.on(self.session.device)
        with autocast(self.session.device, self.precision):
            # Not the wrapped model: DDP would overwrite the buffers of ranks in the middle of a
            # training.
            output = (self.model if self.inner is None else self.inner)(*batch.inputs)
            if not self.counts:
                return no_sums(metrics)
            return sums(metrics, output, batch.target, batch.rows)

    def _add(self, batch: Batch, factor: float) -> torch.Tensor:
        with autocast(self.session.device, self.precision):
            output = self.model(*batch.inputs)
            loss = zero_of(output) if factor == 0 else None
            loss = self.loss(output, batch.target) if loss is None else loss
        # Times 1.0 is the same number but one more node of the graph, in every step of most
        # trainings.
        (loss if factor == 1.0 else loss * factor).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _add_in_pieces(self, batch: Batch, factor: float) -> torch.Tensor:
        loss = torch.zeros((), device=self.session.device)
        last = self.accumulate - 1
        for number, (piece, share_of_rows) in enumerate(batch.pieces(self.accumulate)):
            share = self._share(piece, share_of_rows, batch)
            with contextlib.ExitStack() as stack:
                self._reduce_now(number == last, stack)
                if share_of_rows == 0:
                    stack.enter_context(normed_by_averages(self.model))
                loss = loss + self._add(piece, factor * share) * share
        return loss

    def _reduce_now(self, is_last: bool, stack: contextlib.ExitStack) -> None:
        """Let the next backward pass reduce the gradients of all pieces, if it is the last one."""
        if not isinstance(self.model, FSDPModule):
            # DDP averages the sum once.
            if not is_last:
                stack.enter_context(getattr(self.model, "no_sync", contextlib.nullcontext)())
        elif self.keeps_gradients:
            self.model.set_requires_gradient_sync(is_last)
        else:
            # Each piece adds to this rank's shard: whole gradients would take the memory that
            # shards save. Replicas of the shard add theirs once.
            self.model.set_requires_all_reduce(is_last)

    def _share(self, piece: Batch, share_of_rows: float, batch: Batch) -> float:
        """Return how much of the mean over the batch a piece makes."""
        if self.loss.divisor is None or share_of_rows == 0:
            return share_of_rows
        weight, whole = (self.loss.weigh(part.target, part.rows) for part in (piece, batch))
        return weight / whole if whole else 0.0


def autocast(device: torch.device, precision: torch.dtype | None) -> AbstractContextManager[Any]:
    return contextlib.nullcontext() if precision is None else torch.autocast(device.type, precision)


@contextmanager
def averages_kept(block: nn.Module) -> Iterator[None]:
    """Let batch norms average into copies, for a batch that is computed again.

    The batch was counted when it was computed first.
    """
    # _NormBase is the base of all norms with running averages, instance norms among them; torch has
    # no public one.
    norms = [module for module in block.modules() if isinstance(module, _NormBase)]
    before = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update(
            {
                name: buffer if buffer is None else buffer.clone()
                for name, buffer in norm._buffers.items()
            }
        )
    try:
        yield
    finally:
        for norm, buffers in zip(norms, before, strict=True):
            norm._buffers.update(buffers)


@contextmanager
def averages_of_first(module: nn.Module, replicas: "Sequence[dist.ProcessGroup]") -> Iterator[None]:
    """Let batch norms use the averages of the first replica, which checkpoints keep."""
    with averages_kept(module):
        norms = [inner for inner in module.modules() if isinstance(inner, _NormBase)]
        for buffer in [buffer for norm in norms for buffer in norm.buffers(recurse=False)]:
            for group in replicas:
                dist.broadcast(buffer, group=group, group_src=0)
        yield


@contextmanager
def without_trace(module: nn.Module, device: torch.device) -> Iterator[None]:
    devices = [device] if device.type == "cuda" else []
    # On a CPU the list is empty: without one, fork_rng would ask every GPU of the machine.
    with averages_kept(module), torch.random.fork_rng(devices):
        yield


@contextmanager
def normed_by_averages(module: nn.Module) -> Iterator[None]:
    """Let batch norms leave their running averages as they are, for a row that does not count."""
    norms = [
        inner
        for inner in module.modules()
        if isinstance(inner, _NormBase)
        and inner.training
        # Their ranks exchange sums, for which the others would wait.
        and not isinstance(inner, nn.SyncBatchNorm)
    ]
    for norm in norms:
        # Not module.eval(), because dropout must work as in training, and draw as many numbers.
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()

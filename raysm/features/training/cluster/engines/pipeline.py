"""Forward and backward of a model that is cut into stages.

The order of the micro-batches is that of torch's own schedules. Each rank of the pipeline gets the
same slice of a batch, and the rank with the last stage returns its loss. Every micro-batch holds
real rows only, so a slice smaller than a full one goes through in fewer or smaller micro-batches.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.utils import _pytree as pytree

from raysm.errors import InvalidInput
from raysm.features.training.cluster.degrees import Parallel
from raysm.features.training.cluster.engines.full_model import (
    Metric,
    autocast,
    no_sums,
    normed_by_averages,
    sums,
    without_trace,
)
from raysm.features.training.cluster.engines.gradients import add_up, average
from raysm.features.training.cluster.engines.mean_loss import MeanLoss, zero_of
from raysm.features.training.cluster.loop.batch import Batch
from raysm.features.training.cluster.loop.session import Session


def stage_numbers(parallel: Parallel, pipeline_rank: int) -> range:
    return range(pipeline_rank, parallel.stages, parallel.pipeline)


def runs(rows: int, microbatch_rows: int, parallel: Parallel) -> list[tuple[int, int]]:
    """Return the runs of a slice through the pipeline, in their order.

    Each run is a pair: the number of micro-batches, and the rows of each. All micro-batches of a
    run have the same shape, because the stages' messages need it. Those of different runs differ by
    one row at most: a small last micro-batch might have a single row, which batch norms cannot
    normalise.
    """
    count = -(-rows // microbatch_rows)
    size, larger = divmod(rows, count)
    parts = [(larger, size + 1), (count - larger, size)]
    if parallel.schedule == "interleaved":
        # The interleaved schedule takes multiples of the pipeline's workers, or fewer.
        rests = [(number % parallel.pipeline, rows_of_each) for number, rows_of_each in parts]
        whole = [
            (number - number % parallel.pipeline, rows_of_each) for number, rows_of_each in parts
        ]
        parts = [part for pair in zip(whole, rests, strict=True) for part in pair]
    return [(number, rows_of_each) for number, rows_of_each in parts if number]


class Stage(nn.Module):
    def __init__(
        self, part: nn.Module, device: torch.device, precision: torch.dtype | None
    ) -> None:
        super().__init__()
        self.part = part
        self._device = device
        self._precision = precision
        self.expects_trial = False
        """A new ``PipelineStage`` makes the next call, on uninitialised memory, to learn shapes."""
        self.is_trial = False
        """The last call was such a trial; torch may compute the loss of its output."""

    def forward(self, *inputs: Any) -> Any:
        self.is_trial = self.expects_trial
        self.expects_trial = False
        with without_trace(self.part, self._device) if self.is_trial else contextlib.nullcontext():
            with autocast(self._device, self._precision):
                return self.part(*inputs)


# torch 2.9 always returns the outputs.
UNRETURNED = (
    {"return_outputs": False}
    if "return_outputs" in signature(ScheduleGPipe.step).parameters
    else {}
)


class ScheduledStage(PipelineStage):
    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        # The first messages of torch 2.9 have 8 bytes where 4 are received, on which Gloo aborts.
        # It needs none.
        return [] if self.device.type == "cpu" else super()._get_init_p2p_neighbors_ops()


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRank:
    number: int
    group: dist.ProcessGroup
    replicas: dist.ProcessGroup | None
    """The ranks with the same stages, whose gradients are averaged; None if something else does
    it."""
    counts: bool
    """This pipeline accounts for its slice's loss; one of the pipelines that share a slice must do
    so."""
    tied: Sequence[tuple[Sequence[nn.Parameter], dist.ProcessGroup]] = ()
    """Parameters of this rank, and the ranks that have copies of them, whose gradients add up."""


class Pipeline:
    def __init__(
        self,
        modules: Sequence[Stage],
        *,
        parallel: Parallel,
        rank: PipelineRank,
        loss: MeanLoss,
        session: Session,
        precision: torch.dtype | None,
    ) -> None:
        if parallel.schedule == "interleaved" and not UNRETURNED:
            version = torch.__version__
            raise InvalidInput(
                f"schedule='interleaved' gets wrong gradients from torch {version}; use a newer one"
            )
        self._loss = loss
        self._session = session
        self._precision = precision
        self._modules = modules
        self._parallel = parallel
        self._rank = rank
        self._parameters = [parameter for module in modules for parameter in module.parameters()]
        self._numbers = stage_numbers(parallel, rank.number)
        self._is_first = 0 in self._numbers
        self._is_last = parallel.stages - 1 in self._numbers
        self._schedules: dict[tuple[int, int], Any] = {}
        self._forward_schedules: dict[tuple[int, int], Any] = {}
        self._full_rows: int | None = None
        self._factor_of_weight = 1.0
        self._target: Any = None

    def forward_backward(self, batch: Batch, factor: float) -> torch.Tensor:
        batch = batch.on(self._session.device)
        self._target = batch.target
        rows = len(pytree.tree_leaves(batch.inputs)[0])
        microbatch_rows = self._full_slice(rows) // self._parallel.microbatch_count
        # 0 in a slice without a target, such as tokens that are all padding.
        weight = self._loss.weigh(self._target, rows)
        self._factor_of_weight = factor / weight if weight else 0.0
        losses: list[torch.Tensor] = []
        first = 0
        with contextlib.ExitStack() as stack:
            # A rank without rows of its own computes one that does not count and must not change
            # the averages.
            for module in self._modules if self._session.share == 0 else ():
                stack.enter_context(normed_by_averages(module))
            for count, size in runs(rows, microbatch_rows, self._parallel):
                losses += self._run(batch.inputs, torch.arange(first, first + count * size), count)
                first += count * size
        if self._rank.replicas is not None:
            average(self._parameters, self._rank.replicas)
        for parameters, group in self._rank.tied:
            add_up(parameters, group)
        if not (self._is_last and self._rank.counts and factor):
            return torch.zeros((), device=self._session.device)
        return torch.stack([loss.detach() for loss in losses]).sum() / factor

    def metric_sums(self, batch: Batch, metrics: Sequence[Metric]) -> torch.Tensor:
        batch = batch.on(self._session.device)
        rows = batch.rows
        # Rounded up: nothing is learned, so the slices of an evaluation need not divide.
        microbatch_rows = -(
            -max(rows, self._session.slice_rows or 0) // self._parallel.microbatch_count
        )
        total = no_sums(metrics)
        first = 0
        for count, size in runs(rows, microbatch_rows, self._parallel):
            numbers = torch.arange(first, first + count * size)
            kind = count, size
            if kind not in self._forward_schedules:
                self._forward_schedules[kind] = self._schedule(count, forward_alone=True)
            output = self._forward_schedules[kind].step(
                *(_rows(batch.inputs, numbers) if self._is_first else ())
            )
            if self._is_last and self._rank.counts:
                with autocast(self._session.device, self._precision):
                    total += sums(metrics, output, _rows(batch.target, numbers), count * size)
            first += count * size
        return total

    def _run(self, inputs: tuple[Any, ...], rows: torch.Tensor, count: int) -> list[torch.Tensor]:
        losses: list[torch.Tensor] = []
        own_inputs = _rows(inputs, rows) if self._is_first else ()
        # The schedule cuts tensors only: it gets the numbers of the rows, by which the loss finds
        # its targets.
        options: dict[str, Any] = {
            "target": rows if self._is_last else None,
            "losses": losses,
            **UNRETURNED,
        }
        kind = count, len(rows) // count
        # A schedule knows the shapes of one kind of run; a new one would try the stages again.
        if kind in self._schedules:
            self._schedules[kind].step(*own_inputs, **options)
        else:
            self._schedules[kind] = self._schedule(count)
            # In its first step a schedule tries the stages, and drops the gradients that it finds
            # in shards.
            with self._gradients_set_aside():
                self._schedules[kind].step(*own_inputs, **options)
        return losses

    def _schedule(self, count: int, *, forward_alone: bool = False) -> Any:
        stages: list[Any] = []
        for module, number in zip(self._modules, self._numbers, strict=True):
            # An evaluation makes no trial; expecting one would hide the training's.
            module.expects_trial = not forward_alone
            stages.append(
                ScheduledStage(
                    module,
                    number,
                    self._parallel.stages,
                    self._session.device,
                    group=self._rank.group,
                )
            )
        # The schedule would weigh all micro-batches equally; the loss weighs them by their rows.
        loss = None if forward_alone else self._loss_of_rows
        options: dict[str, Any] = {"loss_fn": loss, "scale_grads": False}
        if self._parallel.schedule == "interleaved":
            return ScheduleInterleaved1F1B(stages, count, **options)
        # 1f1b refuses fewer micro-batches than stages; with so few, gpipe does the same.
        if self._parallel.schedule == "1f1b" and count >= self._parallel.stages:
            return Schedule1F1B(stages[0], count, **options)
        # Made for fewer micro-batches than stages, torch 2.9 refuses what it can run.
        schedule = ScheduleGPipe(stages[0], max(count, self._parallel.stages), **options)
        schedule._n_microbatches = count
        return schedule

    @contextlib.contextmanager
    def _gradients_set_aside(self) -> Iterator[None]:
        # These gradients come from earlier runs of the same step.
        before = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        yield
        for parameter, grad in zip(self._parameters, before, strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else grad.add_(parameter.grad)

    def _loss_of_rows(self, output: Any, rows: torch.Tensor) -> torch.Tensor:
        """Return the weighed loss of a micro-batch.

        The sum over all micro-batches is ``factor`` x the mean of the slice.
        """
        target = _rows(self._target, rows)
        factor = self._factor_of_weight * self._loss.weigh(target, len(rows))
        with autocast(self._session.device, self._precision):
            loss = zero_of(output) if factor == 0 else None
            if loss is not None:
                return loss
            # What a trial leaves in the memory must not decide whether the loss is a mean.
            compute = self._loss.compute if self._modules[-1].is_trial else self._loss
            return compute(output, target) * factor

    def _full_slice(self, rows: int) -> int:
        # Once: the weight of a row, and so the loss, must not depend on which slice came first.
        if self._full_rows is None:
            count = self._parallel.microbatch_count
            self._full_rows = self._session.slice_rows or rows
            if self._full_rows % count:
                raise InvalidInput(
                    f"a slice of {self._full_rows} rows does not divide into microbatches={count}; "
                    "change one of both"
                )
        if rows > self._full_rows:
            raise InvalidInput(
                f"a slice has {rows} rows, the first one had {self._full_rows}: batches may not "
                "become larger"
            )
        return self._full_rows


def _rows(value: Any, rows: torch.Tensor) -> Any:
    first = int(rows[0])
    count = len(rows)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[first : first + count], value)

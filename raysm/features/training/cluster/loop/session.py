"""This process's rank among the workers, and the state that the training's calls share.

These calls are ``prepare``, ``step``, ``batches`` and those for checkpoints. Nothing here uses Ray:
the same code runs in a Ray Train worker, in a child of a TorchScript, under bare torchrun, and in
one plain process.
"""

import atexit
import contextlib
import itertools
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from raysm.core.protocol.events import Metric, describe_not_finite, line
from raysm.core.protocol.names import STOP_ON_NAN, TRIAL
from raysm.errors import InvalidConfig, InvalidRequest, MetricDiverged
from raysm.features.training.cluster.loop.loader import Loader
from raysm.features.training.cluster.loop.position import DataOrder, Position
from raysm.features.training.cluster.loop.step_loss import StepLoss
from raysm.features.training.request import Precision
from raysm.instance import environment
from raysm.instance.work import report
from raysm.instance.work.report import find_diverged, metrics_of, numbers, text_line


class Observer:
    """Base class of objects that follow the steps.

    Every rank calls its observers in the order in which they were added.
    """

    def on_loop_begin(self) -> None:
        """Called before a loop over ``batches`` that may train begins to read."""

    def on_step_begin(self, step: int) -> None:
        """Called before step number ``step``.

        Steps count from 1 over the whole training, restarts included.
        """

    def on_step_end(self, step: int, loss: StepLoss) -> None:
        """Called after a step; ``loss`` is the global mean, the same on every rank.

        Reading the loss waits for the device.
        """

    def on_divergence(self) -> str:
        """Called before the training ends because a metric is not finite.

        Returns:
            What is kept, or nothing.
        """
        return ""

    def on_end(self) -> None:
        """Called once, after the user's loop has returned or raised."""


@dataclass(kw_only=True, slots=True)
class Session:
    rank: int
    world_size: int
    local_rank: int
    hosts: tuple[str, ...]
    """The instance of each rank, by name."""
    device: torch.device
    replicate: Callable[[torch.nn.Module, Mapping[str, Any]], torch.nn.Module] | None = None
    """Wrap a model by DDP with these options of its; None is torch's own class."""
    precision: Precision = "fp32"
    in_job: bool = False
    trainer: Any = None
    model_saved: bool = False
    position: Position = field(default_factory=Position)
    reported: dict[str, float] = field(default_factory=dict)
    stop_asked: bool = False
    stop_agreed: bool = False
    """Some rank received SIGTERM; set on all ranks after the same step."""
    stop_on_nan: str | None = None
    """The training ends once this metric is NaN or infinite; ``loss`` is that of the step."""
    losses: deque[tuple[int, StepLoss, torch.Tensor]] = field(default_factory=deque)
    """Of the steps whose losses nothing has looked at: number, mean of all ranks, and own loss."""
    is_diverged: bool = False
    """The last loss that was looked at was not finite."""
    diverged_rank: int | None = None
    """The first rank whose own loss was not finite when the loss became so."""
    rounds: int = 0
    """Steps and evaluations that this process has begun; all ranks take them together."""
    observers: list[Observer] = field(default_factory=list)
    """``attach`` adds them."""
    ends: list[Callable[[], None]] = field(default_factory=list)
    """What ends the observers, in the order in which they were attached."""
    loaders: dict[tuple[DataOrder, int], Loader] = field(default_factory=dict)
    """Those whose workers persist, by their order and number of workers."""
    timer: Callable[[str], AbstractContextManager[Any]] | None = None
    cpu_group: "dist.ProcessGroup | None" = None
    """Gloo, for tensors and objects of the CPU; None in a single process."""

    @property
    def host(self) -> str:
        return self.hosts[self.rank]

    @property
    def data_rank(self) -> int:
        return self.trainer.layout.data_rank(self.rank) if self.trainer else self.rank

    @property
    def data_ranks(self) -> int:
        return self.trainer.layout.data_ranks if self.trainer else self.world_size

    @property
    def share(self) -> float | None:
        """Rows of this data rank's slice / rows of the batch.

        By this share, a last batch that is smaller or uneven gets its exact weight.
        """
        return self.position.current.share if self.position.current else None

    @property
    def slice_rows(self) -> int | None:
        return self.position.current.slice_rows if self.position.current else None

    def attach(self, observer: Observer) -> None:
        """Let an observer follow the steps, and end it with the session, or with the process."""
        self.observers.append(observer)
        self.ends.append(_once_or_at_exit(observer.on_end))

    def span(self, name: str) -> AbstractContextManager[Any]:
        return self.timer(name) if self.timer else contextlib.nullcontext()

    def mean_of(self, own: torch.Tensor) -> StepLoss:
        """Begin to sum a loss over all ranks, and return the sum, which nothing waits for."""
        # float64, because a sum over a thousand ranks in float32 would depend on the order of
        # arrival. Copied, because the sum is made in place.
        message = own.detach().to(torch.float64, copy=True)
        work = dist.all_reduce(message, async_op=True) if self.world_size > 1 else None
        return StepLoss(message, work, self.span)

    def begin_exchange(self) -> Callable[[], None]:
        """Begin to ask all ranks if one received SIGTERM, and which losses they all have.

        Call this method when a step's gradients are made, and the returned function at the end of
        the step. The exchange goes on meanwhile. It is one of the hosts alone, and does not wait
        for devices.
        """
        if self.cpu_group is None:
            return self._end_exchange
        # A rank counts from its own clock; only the number that all have is the same everywhere.
        message = torch.tensor([not self.stop_asked, self._arrived()], dtype=torch.int64)
        work = dist.all_reduce(message, dist.ReduceOp.MIN, group=self.cpu_group, async_op=True)

        def end_exchange() -> None:
            work.wait()
            goes_on, arrived = message.tolist()
            self.stop_agreed = not goes_on
            self.look_at_losses(arrived)

        return end_exchange

    def _end_exchange(self) -> None:
        self.stop_agreed = self.stop_asked
        self.look_at_losses(self._arrived())

    def _arrived(self) -> int:
        return sum(1 for _ in itertools.takewhile(lambda each: each[1].has_arrived, self.losses))

    def look_at_losses(self, count: int | None = None) -> None:
        """Report which of the next ``count`` losses, by default of all, are not finite.

        Every rank must call this method, with the same count. It waits for losses that have not
        arrived.
        """
        for _ in range(len(self.losses) if count is None else count):
            self._report_divergence(*self.losses.popleft())

    def first_rank(self, is_here: bool) -> int | None:
        """Return the first rank on which ``is_here`` is true, or None; every rank must call it."""
        first = torch.tensor([self.rank if is_here else self.world_size])
        if self.cpu_group is not None:
            dist.all_reduce(first, dist.ReduceOp.MIN, group=self.cpu_group)
        return None if first.item() == self.world_size else int(first.item())

    def _report_divergence(self, step: int, mean: StepLoss, own: torch.Tensor) -> None:
        """Report the loss of a step that is not finite, with the rank that made it so.

        Of several such steps in a row, only the first is reported, and then the first step whose
        loss is finite again.
        """
        is_diverged = not math.isfinite(mean)
        if is_diverged == self.is_diverged:
            return
        self.is_diverged = is_diverged
        if is_diverged:
            self.diverged_rank = self.first_rank(not math.isfinite(own.item()))
        rank = self.diverged_rank
        is_trial = report.listener() is not None or TRIAL in environment.inherited()
        metric = Metric(name="loss", value=float(mean), step=step, rank=rank)
        self._write([metric], is_silent=is_trial)

    def report(self, *, step: int | None = None, **metrics: float) -> None:
        """Report metrics of rank 0."""
        values = numbers(metrics)
        self.reported |= values
        step = self.position.steps if step is None else step
        take = report.listener()
        if take is None:
            self._write(metrics_of(values, step, self.rank))
        elif self.rank == 0:
            take(report.report_of(values, step, None))

    def _write(self, metrics: Sequence[Metric], *, is_silent: bool = False) -> None:
        """Write metrics into the log, and end the training if the job ends at one of them."""
        diverged = find_diverged(metrics, self.stop_on_nan)
        # Before the line is in the log: the head gives the training a few seconds from then on.
        kept = [] if diverged is None else [each.on_divergence() for each in self.observers]
        if self.rank == 0 and not is_silent:
            if self.in_job:
                lines = [line(each) for each in metrics]
            else:
                lines = [text_line({each.name: each.value for each in metrics}, metrics[0].step)]
            print("\n".join(lines), flush=True)  # noqa: T201 - metrics travel in the log
        if diverged is not None:
            raise MetricDiverged("; ".join(filter(None, [describe_not_finite(diverged), *kept])))

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(f"raysm: {text}", flush=True)  # noqa: T201 - the job's log


_session: Session | None = None


def begin(
    *,
    device: torch.device | None = None,
    replicate: Callable[[torch.nn.Module, Mapping[str, Any]], torch.nn.Module] | None = None,
    precision: Precision = "fp32",
) -> Session:
    """Make this process's session.

    The session uses the process group that exists, or makes one by torchrun's variables. Without
    either, this process is the only worker.
    """
    global _session
    if _session is not None:
        raise InvalidRequest(
            "training: this process has a session already; end() it before the next"
        )
    variables = environment.inherited()
    local_rank = int(variables.get("LOCAL_RANK", 0))
    # Before the process group: NCCL binds itself to the device that is current then.
    device = device or _device(local_rank)
    if not dist.is_initialized() and "RANK" in variables:
        # Torch would name only one of them, and not the tool that should have set them.
        missing = [
            name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in variables
        ]
        if missing:
            raise InvalidConfig(
                f"training: RANK is set but not {', '.join(missing)}; use torchrun or raysm train"
            )
        # Gloo carries everything on CPUs; GPUs talk by NCCL, which is several times as fast.
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    cpu_group = None
    if dist.is_initialized():
        # NCCL does not send CPU tensors, which checkpoints, seeds and figures are.
        cpu_group = (
            dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        )
    # Only SageMaker writes this file.
    in_job = environment.base_paths(variables).resource_config.exists()
    _session = Session(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        hosts=_hosts(variables, world_size, cpu_group),
        device=device,
        replicate=replicate,
        precision=precision,
        in_job=in_job,
        stop_on_nan=variables.get(STOP_ON_NAN) if in_job else None,
        cpu_group=cpu_group,
    )
    return _session


def current() -> Session:
    """Return this process's session; begin it at the first call."""
    return _session or begin()


def end() -> None:
    global _session
    # Reset first: an observer that raises must not leave a session that the next begin() refuses.
    ending = _session
    _session = None
    if ending is not None:
        ending.loaders.clear()
        for end_observer in ending.ends:
            end_observer()


def _once_or_at_exit(work: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does ``work`` once; the exit of this process calls it too."""
    owner = os.getpid()
    is_done = False

    def work_once() -> None:
        nonlocal is_done
        # A process that the script has forked ends with the exit handlers of this one.
        if is_done or os.getpid() != owner:
            return
        is_done = True
        # Else the interpreter keeps the whole session until its end.
        atexit.unregister(work_once)
        work()

    atexit.register(work_once)  # scripts do not call end()
    return work_once


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # If the launcher shows each worker only its own GPU, that is number 0.
    device = torch.device("cuda", local_rank if local_rank < torch.cuda.device_count() else 0)
    torch.cuda.set_device(device)
    return device


def _hosts(
    variables: Mapping[str, str], world_size: int, group: "dist.ProcessGroup | None"
) -> tuple[str, ...]:
    if environment.base_paths(variables).resource_config.exists():
        name = environment.read(variables).current_host
    else:
        # The node's number is enough, because names only group the ranks that share an instance.
        node = variables.get("GROUP_RANK") or variables.get("NODE_RANK")
        name = f"node-{node}" if node else socket.gethostname()
    if world_size == 1:
        return (name,)
    # Gathered from all ranks: bare torchrun has no list of hosts.
    names: list[str] = [""] * world_size
    dist.all_gather_object(names, name, group=group)
    return tuple(names)

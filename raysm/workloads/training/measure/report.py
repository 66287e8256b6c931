"""Measures a training while it runs, and says at its end where the time went and what to try.

Rank 0 emits metrics (seconds of a step by kind), prints two lines at the end, and writes ``training.json`` beside the
model, from which the result's manifest takes its figures.
"""

import atexit
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, median_low
from typing import Any

import torch.distributed as dist

from raysm.bootstrap import environment
from raysm.bootstrap.log import emit_event
from raysm.contract.events import Metric
from raysm.contract.result import Measured
from raysm.workloads.training.loop.session import Observer, Session
from raysm.workloads.training.measure.profiling import StepProfile, StepProfiler, is_due
from raysm.workloads.training.measure.spans import (
    CHECKPOINT,
    COMMUNICATION,
    COMPUTE,
    DATA,
    MEASURING,
    OTHER,
    Spans,
    Totals,
)
from raysm.workloads.training.measure.usage import Usage

__all__ = ["Measuring", "Picture", "RankTime", "bottleneck", "measure"]

WARM_UP_STEPS = 2
"""The first steps allocate, compile kernels and start loader workers, so they do not count."""

MIN_PROFILES = 3
"""Before ranks are compared: a single step may be held up by anything."""

EMIT_EVERY_S = 2.0
"""Between two metrics of a name: the means of the steps since."""

MIN_SHARE, MIN_CHECKPOINT_SHARE = 0.10, 0.05
"""Below this share of the time nothing is gained by acting on it; saving less often costs nothing."""

CHECKPOINT_GOAL = 0.02
"""The share to which the advice on checkpoints leads."""

IMBALANCE = 1.25
"""A rank that computes this much longer than the median holds the others up."""

FULL_PERCENT, IDLE_PERCENT = 85.0, 57.5
"""A resource above the first can give no more, one below the second is far from busy."""

LONG_STEPS, LONG_S = 100, 60.0
"""A shorter run gets no advice, only the share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTime:
    """Seconds that one rank computes in a step, without communication."""

    rank: int
    host: str
    computing_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """What a run looked like from rank 0. Shares are of the time, 0 to 1."""

    steps: int
    step_s: float
    data: float
    checkpoint: float
    communication: float | None
    """Share in which ranks wait for each other and compute nothing; None if no step was profiled."""
    computing: float
    other: float
    """Share of the user's own code between the steps."""
    device: str = "cpu"
    precision: str = "fp32"
    pipeline: int = 1
    usage: Mapping[str, float] = field(default_factory=dict)
    """Means of rank 0's instance by the names of ``usage``."""
    ranks: tuple[RankTime, ...] = ()


def bottleneck(picture: Picture) -> str:
    """Return one sentence: what the run waited for most, with its share, and what to try."""
    if picture.steps < 1:
        return "too few steps to say where the time went"
    shares = {
        _data: picture.data,
        _checkpoint: picture.checkpoint if picture.checkpoint >= MIN_CHECKPOINT_SHARE else 0.0,
        _communication: picture.communication or 0.0,
        _other: picture.other,
    }
    largest = max(shares, key=lambda each: shares[each])
    least = MIN_CHECKPOINT_SHARE if largest is _checkpoint else MIN_SHARE
    share, detail, advice = (largest if shares[largest] >= least else _computing)(picture)
    is_long = picture.steps >= LONG_STEPS and picture.steps * picture.step_s >= LONG_S
    return f"{share}{detail}: {advice}" if is_long else share


Finding = tuple[str, str, str]
"""The share with its number, a detail that follows it, and what to try."""


def _data(picture: Picture) -> Finding:
    cpu = picture.usage.get("cpu_percent", 0.0)
    advice = "more loader workers (loader_workers=2 in training.batches), or data that is ready to use"
    if cpu >= FULL_PERCENT:
        advice = f"the CPUs are {cpu:.0f} % busy: prepare the data once and store it ready, or take more CPUs per GPU"
    return f"{_percent(picture.data)} of the step waits for data", "", advice


def _checkpoint(picture: Picture) -> Finding:
    factor = max(2, round(picture.checkpoint / CHECKPOINT_GOAL))
    advice = f"save {factor} times more rarely (Checkpoints(every_steps=…))"
    return f"{_percent(picture.checkpoint)} of the time goes into checkpoints", "", advice


def _communication(picture: Picture) -> Finding:
    share = f"{_percent(picture.communication or 0.0)} of the step waits for"
    if len(picture.ranks) > 1:
        slowest = max(picture.ranks, key=lambda each: each.computing_s)
        # The lower one of two, so that of two ranks the slower one is compared with the faster one.
        usual_s = max(1e-12, median_low(each.computing_s for each in picture.ranks))
        if slowest.computing_s > IMBALANCE * usual_s:
            longer = _percent(slowest.computing_s / usual_s - 1)
            advice = (
                "split the stages elsewhere (blocks='…')" if picture.pipeline > 1 else "give it equal work and CPUs"
            )
            return (
                f"{share} rank {slowest.rank} on {slowest.host}, which computes {longer} longer than the median",
                "",
                f"{advice}, or look at what else runs there",
            )
    if picture.pipeline > 1:
        return f"{share} communication and the pipeline's bubble", "", "more micro-batches, or schedule='interleaved'"
    bf16 = "precision='bf16', or " if picture.device == "cuda" and picture.precision == "fp32" else ""
    sent = picture.usage.get("network_sent_bytes_per_s", 0.0)
    rate = f" ({sent / 1e6:,.0f} MB/s sent per instance)" if sent >= 1e6 else ""
    advice = f"a larger batch per worker, or {bf16}instances with a faster network, or fewer of them"
    return f"{share} communication", rate, advice


def _other(picture: Picture) -> Finding:
    share = f"{_percent(picture.other)} of the time goes into the loop's own code between the steps"
    return share, "", "compute metrics and print more rarely"


def _computing(picture: Picture) -> Finding:
    share = f"{_percent(picture.computing)} of the step computes"
    # 0 means unknown, without psutil.
    gpu, cpu = picture.usage.get("gpu_percent", 100.0), picture.usage.get("cpu_percent") or 100.0
    if picture.device == "cuda":
        if gpu < IDLE_PERCENT:
            return share, f", and yet the GPU is {gpu:.0f} % busy", "a larger batch, or torch.compile"
        bf16 = "precision='bf16', or " if picture.precision == "fp32" else ""
        return share, ", and nothing else holds it up", f"{bf16}more or faster GPUs"
    if cpu < IDLE_PERCENT:
        return share, f", and yet the CPUs are {cpu:.0f} % busy", "a larger batch, or more workers per instance"
    return share, ", and nothing else holds it up", "more or faster instances, or GPUs"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def measure(session: Session, precision: str) -> None:
    """Begin to measure, unless ``RAYSM_MEASURE`` is 0."""
    if environment.measures():
        measuring = Measuring(session, precision)
        session.timer = measuring.spans.span
        session.observers.append(measuring)
        atexit.register(measuring.on_end)  # a script ends without saying so


class Measuring(Observer):
    """Sees every step of one rank."""

    def __init__(
        self, session: Session, precision: str = "fp32", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin."""
        self.spans = Spans(clock)
        self._session, self._precision, self._clock = session, precision, clock
        self._steps = 0
        self._profiler: StepProfiler | None = None
        self._profiles: list[StepProfile] = []
        self._computing_s: list[list[float]] = []
        self._emitted_s = clock()
        self._over = False
        self._usage: Usage | None = None
        if session.rank == 0:
            # In a job the launcher emits the usage of each instance and says what stays unknown.
            say = (lambda line: None) if session.in_job else session.say
            self._usage = Usage(session.host, lambda event: None, say, has_gpus=session.device.type == "cuda")
            self._usage.__enter__()

    def on_step_begin(self, step: int) -> None:
        """Profile this step if it is its turn."""
        self._steps += 1
        if is_due(self._steps) and StepProfiler.is_possible():
            with self.spans.span(MEASURING):
                self._profiler = StepProfiler(self._session.device)

    def on_step_end(self, step: int, loss: float) -> None:
        """Count the step; emit metrics from time to time."""
        with self.spans.span(MEASURING):
            if is_due(self._steps):
                self._end_profile()
        self.spans.step_done()
        if self._steps == WARM_UP_STEPS:
            self.spans.restart()
        now_s = self._clock()
        if self._steps > WARM_UP_STEPS and now_s - self._emitted_s >= EMIT_EVERY_S:
            self._emitted_s = now_s
            self._emit(step)

    def on_end(self) -> None:
        """On rank 0, say once where the time went."""
        if self._over:
            return
        self._over = True
        atexit.unregister(self.on_end)  # else the interpreter keeps the whole session until its end
        if self._usage is not None:
            self._usage.__exit__(None, None, None)
        total, session = self.spans.total, self._session
        if session.rank != 0 or total.steps == 0:
            return
        # The last steps, so that the figures end where the training did.
        self._emit(session.position.steps)
        measured = Measured(summary=bottleneck(self.picture()), measures=self.measures())
        per_step = self._per_step(total)
        step_s = max(1e-12, per_step.pop("step_s"))
        shares = ", ".join(f"{name[:-2].replace('_', ' ')} {_percent(s / step_s)}" for name, s in per_step.items())
        last = session.position.steps
        which = f"steps {last - total.steps + 1} to {last}, after {WARM_UP_STEPS} of warm-up"
        session.say(f"{which}: {1 / step_s:.2f} a second; of the time: {shares}")
        session.say(measured.summary)
        if session.in_job:
            measured.write(environment.base_paths().model)

    def picture(self) -> Picture:
        """Return what the run looks like so far, from this rank."""
        total, session = self.spans.total, self._session
        in_step = total.share(COMPUTE) + total.share(COMMUNICATION)
        waiting = self._waiting()
        communicated = None if waiting is None else waiting * in_step
        return Picture(
            steps=total.steps,
            step_s=total.wall_s / max(1, total.steps),
            data=total.share(DATA),
            checkpoint=total.share(CHECKPOINT),
            communication=communicated,
            computing=in_step - (communicated or 0.0),
            other=total.share(OTHER),
            device=session.device.type,
            precision=self._precision,
            pipeline=1 if session.trainer is None else session.trainer.layout.pipeline,
            usage=self._usage.means() if self._usage else {},
            ranks=self._ranks(),
        )

    def measures(self) -> dict[str, float]:
        """Return the figures of the run so far."""
        total = self.spans.total
        if total.steps == 0 or total.wall_s <= 0:
            return {}
        # All steps, as the log counts them; the seconds are means of those after the warm-up.
        measures: dict[str, float] = {"steps": self._steps, "steps_per_s": total.steps / total.wall_s}
        measures |= self._per_step(total)
        measures |= {f"mean_{name}": value for name, value in (self._usage.means() if self._usage else {}).items()}
        return {name: round(value, 6) for name, value in measures.items() if math.isfinite(value)}

    def _end_profile(self) -> None:
        """End the profile, and compare the ranks, which are all at the same step."""
        profiler, self._profiler = self._profiler, None
        computing_s = math.nan
        if profiler is not None:
            found = profiler.end()
            self._profiles.append(found)
            computing_s = found.wall_s - found.communication_s
        if self._session.cpu_group is not None:
            every: list[Any] = [None] * self._session.world_size
            dist.all_gather_object(every, computing_s, group=self._session.cpu_group)
            self._computing_s.append(every)

    def _waiting(self) -> float | None:
        """Return the share of a step that waits for communication, by the median profile; None before any."""
        return median(each.share for each in self._profiles) if self._profiles else None

    def _ranks(self) -> tuple[RankTime, ...]:
        if len(self._computing_s) < MIN_PROFILES:
            return ()
        return tuple(
            RankTime(rank=rank, host=self._session.hosts[rank], computing_s=median(seconds))
            for rank, seconds in enumerate(zip(*self._computing_s, strict=True))
            if not any(map(math.isnan, seconds))
        )

    def _per_step(self, totals: Totals) -> dict[str, float]:
        """Return the mean seconds of a step by kind."""
        mean_s = {kind: spent_s / totals.steps for kind, spent_s in totals.seconds.items()}
        waiting = self._waiting()
        in_step_s = mean_s.get(COMPUTE, 0.0) + mean_s.get(COMMUNICATION, 0.0)
        communication_s = (waiting or 0.0) * in_step_s
        return {
            "step_s": totals.wall_s / totals.steps,
            "data_s": mean_s.get(DATA, 0.0),
            "forward_backward_s": in_step_s - communication_s,
            **({} if waiting is None else {"communication_s": communication_s}),
            "checkpoint_s": mean_s.get(CHECKPOINT, 0.0),
            "between_steps_s": mean_s.get(OTHER, 0.0),
        }

    def _emit(self, step: int) -> None:
        """Emit the means of the steps up to ``step`` since the last time; only in a job are events read."""
        if self._session.in_job and self._session.rank == 0:
            recent = self.spans.take_recent()
            for name, value in self._per_step(recent).items() if recent.steps else ():
                emit_event(Metric(name=name, value=round(value, 6), step=step))

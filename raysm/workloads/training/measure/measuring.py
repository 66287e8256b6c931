"""Measures a training while it runs, and says at its end where the time went.

What flows in are the session's steps and spans; what flows out are metrics of rank 0 (seconds per step, by kind), two
lines of the log at the end, and ``training.json`` beside the model, from which the result's manifest takes its figures.
"""

import atexit
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import torch.distributed as dist

from raysm.bootstrap import environment
from raysm.bootstrap.log import emit_event
from raysm.contract.events import Metric
from raysm.contract.result import Measured
from raysm.request.programs import Precision
from raysm.workloads.training.loop.session import Observer, Session
from raysm.workloads.training.measure import communication
from raysm.workloads.training.measure.bottleneck import Picture, RankTimes, bottleneck
from raysm.workloads.training.measure.communication import StepProfile, StepProfiler
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

__all__ = ["Measuring", "measure"]

WARM_UP_STEPS = 2
"""They allocate, compile kernels and start loader workers: no share of a run says anything about them."""

MIN_LOOKS = 3
"""Before ranks are compared."""

EMIT_EVERY_S = 2.0
"""At most so often the log gets a step's figures: the means of the steps since."""


def measure(session: Session, precision: Precision = "fp32") -> "Measuring | None":
    """Begin to measure, unless ``RAYSM_MEASURE`` is 0 or it is measured already; return the observer."""
    # A second prepare in one process would time every span twice.
    if session.timer is not None or not environment.measures():
        return None
    measuring = Measuring(session, precision)
    session.timer = measuring.spans.span
    session.observers.append(measuring)
    # A script ends without saying so.
    atexit.register(measuring.on_end)
    return measuring


class Measuring(Observer):
    """Sees every step of one rank."""

    def __init__(
        self, session: Session, precision: Precision = "fp32", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin; the first steps are a warm-up and not counted."""
        self.spans = Spans(clock)
        self._session, self._precision, self._clock = session, precision, clock
        self._steps = 0
        self._look: StepProfiler | None = None
        self._looks: list[StepProfile] = []
        self._computing_s: list[list[float]] = []
        self._emitted_s = clock()
        self._over = False
        self._usage: Usage | None = None
        self._open = ExitStack()
        if session.rank == 0:
            # In a job, what the instance is doing, and what stays unknown of it, is told by its launcher; here it is
            # for the summary.
            say = _ignore if session.in_job else session.say
            has_gpus = session.device.type == "cuda"
            self._usage = self._open.enter_context(Usage(session.host, _ignore, say, has_gpus=has_gpus))

    def on_step_begin(self, step: int) -> None:
        """Look at this step if it is its turn, and nobody else profiles."""
        self._steps += 1
        if communication.is_due(self._steps) and StepProfiler.is_possible():
            with self.spans.span(MEASURING):
                self._look = StepProfiler(self._session.device)

    def on_step_end(self, step: int, loss: float) -> None:
        """Count the step; announce the last ones from time to time."""
        with self.spans.span(MEASURING):
            if communication.is_due(self._steps):
                self._end_look()
        self.spans.step_done()
        # Thrown away, not skipped: spans have to be open from the first step on.
        if self._steps == WARM_UP_STEPS:
            self.spans.restart()
        now_s = self._clock()
        if self._steps > WARM_UP_STEPS and now_s - self._emitted_s >= EMIT_EVERY_S:
            self._emitted_s = now_s
            self._emit(step)

    def on_end(self) -> None:
        """Say where the time went, once; on rank 0."""
        if self._over:
            return
        self._over = True
        # The interpreter would else hold the whole session until its end.
        atexit.unregister(self.on_end)
        self._open.close()
        total = self.spans.total
        if self._session.rank != 0 or total.steps == 0:
            return
        # The last steps, so that the figures end where the training did.
        self._emit(self._session.steps)
        measured = Measured(summary=bottleneck(self.picture()), measures=self.measures())
        self._session.say(_shares(total, self._communicated(), self._session.steps))
        self._session.say(measured.summary)
        if self._session.in_job:
            measured.write(environment.base_paths().model)

    def picture(self) -> Picture:
        """Return what the run looks like so far, from this rank."""
        total, session = self.spans.total, self._session
        in_step = total.share(COMPUTE) + total.share(COMMUNICATION)
        share = self._communicated()
        communicated = None if share is None else share * in_step
        trainer = session.trainer
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
            pipeline=1 if trainer is None else trainer.layout.pipeline,
            usage=self._usage.means() if self._usage else {},
            ranks=self._ranks(),
        )

    def measures(self) -> dict[str, float]:
        """Return the figures of the run so far."""
        total = self.spans.total
        if total.steps == 0 or total.wall_s <= 0:
            return {}
        # How many there were, as the log counts them; the seconds are means of those after the warm-up.
        measures: dict[str, float] = {"steps": self._steps, "steps_per_s": total.steps / total.wall_s}
        measures |= _per_step(total, self._communicated())
        measures |= {f"mean_{name}": value for name, value in (self._usage.means() if self._usage else {}).items()}
        return {name: round(value, 6) for name, value in measures.items() if math.isfinite(value)}

    def _end_look(self) -> None:
        """End the look, and compare the ranks; every rank is at the same step, so all of them are here."""
        look, self._look = self._look, None
        mine = math.nan
        if look is not None:
            interval = look.end()
            self._looks.append(interval)
            mine = interval.wall_s - interval.communication_s
        # One process has nobody to compare itself with.
        if self._session.cpu_group is None:
            return
        every: list[Any] = [None] * self._session.world_size
        dist.all_gather_object(every, mine, group=self._session.cpu_group)
        self._computing_s.append(every)

    def _communicated(self) -> float | None:
        """Return the part of a step that waits for communication, as the median look saw it; None before any."""
        return median(look.share for look in self._looks) if self._looks else None

    def _ranks(self) -> tuple[RankTimes, ...]:
        """Return the ranks' times; none before a third look, because a single step may be held up by anything."""
        if len(self._computing_s) < MIN_LOOKS:
            return ()
        by_rank = enumerate(zip(*self._computing_s, strict=True))
        return tuple(
            RankTimes(rank=rank, host=self._session.hosts[rank], computing_s=median(seconds))
            for rank, seconds in by_rank
            if not any(map(math.isnan, seconds))
        )

    def _emit(self, step: int) -> None:
        """Announce the means of the steps up to ``step`` that were not announced yet; of rank 0 in a job."""
        # Outside of a job nobody reads events; there the two lines at the end are enough.
        if not self._session.in_job or self._session.rank != 0 or self.spans.recent.steps == 0:
            return
        recent = self.spans.take_recent()
        for name, value in _per_step(recent, self._communicated()).items():
            emit_event(Metric(name=name, value=round(value, 6), step=step))


def _ignore(anything: object) -> None:
    pass


def _per_step(totals: Totals, communicated: float | None) -> dict[str, float]:
    """Return the mean seconds of a step by kind; ``communicated`` is what part of forward and backward waits."""

    def seconds(kind: str) -> float:
        return totals.seconds.get(kind, 0.0) / totals.steps

    in_step_s = seconds(COMPUTE) + seconds(COMMUNICATION)
    communication_s = (communicated or 0.0) * in_step_s
    per_step = {"step_s": totals.wall_s / totals.steps, "data_s": seconds(DATA)}
    per_step["forward_backward_s"] = in_step_s - communication_s
    if communicated is not None:
        per_step["communication_s"] = communication_s
    return per_step | {"checkpoint_s": seconds(CHECKPOINT), "between_steps_s": seconds(OTHER)}


def _shares(totals: Totals, communicated: float | None, last: int) -> str:
    """Say what the steps up to ``last`` took; which these are, because the first ones do not count."""
    per_step = _per_step(totals, communicated)
    step_s = max(1e-12, per_step.pop("step_s"))
    shares = ", ".join(f"{name[:-2].replace('_', ' ')} {100 * s / step_s:.0f} %" for name, s in per_step.items())
    measured = f"steps {last - totals.steps + 1} to {last}, after {WARM_UP_STEPS} of warm-up"
    return f"{measured}: {1 / step_s:.2f} a second; of the time: {shares}"

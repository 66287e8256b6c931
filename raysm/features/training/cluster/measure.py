"""Measure where the time of each training step goes, and say at the end what held the training up.

Rank 0 emits the seconds of a step by kind as metrics, prints two lines at the end, and writes
``training.json`` beside the model, from which the result's manifest takes its figures.
"""

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType

from raysm.core.protocol.events import Metric
from raysm.core.protocol.names import TRIAL
from raysm.core.protocol.result import Measured
from raysm.features.training.cluster.loop.session import Observer, Session
from raysm.features.training.cluster.loop.step_loss import StepLoss
from raysm.features.training.cluster.usage import Usage
from raysm.instance import environment
from raysm.instance.log import emit_event

WARM_UP_STEPS = 2
"""The first steps allocate, compile kernels and start loader workers, so they do not count."""

EMIT_STEP_EVERY_S = 2.0
WORTH_ACTING_ON = {"data": 0.10, "checkpoint": 0.05, "between_steps": 0.10}
"""Shares of the time below which advice would gain little; lower for checkpoints, because saving
less often is free."""

FOUND = {
    "data": (
        "of the step waits for data",
        "more loader workers (loader_workers=2 in training.batches), or data that is ready to use",
    ),
    "checkpoint": (
        "of the time goes into checkpoints",
        "save more rarely (Checkpoints(every_steps=…))",
    ),
    "between_steps": (
        "of the time goes into the loop's own code between the steps",
        "compute metrics and print more rarely",
    ),
}
"""By kind of time: what it does, and what to try."""

IDLE_PERCENT = 57.5
"""Processors below it are far from busy."""

LONG_STEPS = 100
LONG_S = 60.0
"""A shorter run gets no advice, only the share."""


def bottleneck(
    shares: Mapping[str, float],
    usage: Mapping[str, float],
    *,
    device: str = "cpu",
    workers: int = 1,
    pipeline: int = 1,
    has_advice: bool = True,
) -> str:
    """Return one sentence: what took the most time, and what to try.

    ``shares`` has the share of each kind of time, 0 to 1. ``usage`` has the means of rank 0's
    instance, by the names of ``usage.usage_between``.
    """
    worth = [kind for kind, least in WORTH_ACTING_ON.items() if shares.get(kind, 0.0) >= least]
    kind = max(worth, key=lambda kind: shares[kind], default="forward_backward")
    processors = "GPUs" if device == "cuda" else "CPUs"
    # 0 means unknown, without psutil.
    busy = (
        usage.get("gpu_percent", 100.0) if device == "cuda" else usage.get("cpu_percent") or 100.0
    )
    if kind in FOUND:
        found, advice = FOUND[kind]
    else:
        found = "of the step computes" + (" and communicates" if workers > 1 else "")
        advice = f"more or faster {processors}"
        if busy < IDLE_PERCENT:
            found += f", and yet the {processors} are {busy:.0f} % busy"
            advice = "a larger batch" + (
                " per worker, fewer instances, or a faster network" if workers > 1 else ""
            )
        if busy < IDLE_PERCENT and pipeline > 1:
            advice = "more micro-batches, or schedule='interleaved'"
    text = f"{_percent(shares.get(kind, 0.0))} {found}"
    return f"{text}: {advice}" if has_advice else text


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def attach_measuring(session: Session) -> None:
    if environment.measures():
        measuring = Measuring(session)
        session.timer = measuring.span
        session.attach(measuring)


class Measuring(Observer):
    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps = 0
        self._emitted_s = time.perf_counter()
        self._usage: Usage | None = None
        self._begin_s = time.perf_counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._total: defaultdict[str, float] = defaultdict(float)
        self._recent: defaultdict[str, float] = defaultdict(float)
        if session.rank == 0:
            # In a job the launcher emits the usage of each instance and says what stays unknown.
            say = (lambda line: None) if session.in_job else session.say
            self._usage = Usage(
                session.host, lambda event: None, say, has_gpus=session.device.type == "cuda"
            )
            self._usage.__enter__()

    def span(self, kind: str) -> "_Span":
        return _Span(self, kind)

    def on_step_end(self, step: int, loss: StepLoss) -> None:
        self._steps += 1
        now_s = time.perf_counter()
        wall_s = now_s - self._begin_s
        # Rounding can make the parts larger than the whole.
        self.seconds["between_steps"] = max(0.0, wall_s - sum(self.seconds.values()))
        for kind, spent_s in {**self.seconds, "steps": 1, "wall": wall_s}.items():
            self._total[kind] += spent_s
            self._recent[kind] += spent_s
        self._begin_s = now_s
        self.seconds.clear()
        if self._steps == WARM_UP_STEPS:
            self._total.clear()
            self._recent.clear()
        if self._steps > WARM_UP_STEPS and now_s - self._emitted_s >= EMIT_STEP_EVERY_S:
            self._emitted_s = now_s
            self._emit(step)

    def on_end(self) -> None:
        """On rank 0, say where the time went."""
        if self._usage is not None:
            self._usage.__exit__(None, None, None)
        total = self._total
        session = self._session
        if session.rank != 0 or not total["steps"]:
            return
        last = session.position.steps
        # The last steps, so that the figures end where the training did.
        self._emit(last)
        per_step = _per_step(total)
        step_s = max(1e-12, per_step.pop("step_s"))
        shares = {name.removesuffix("_s"): seconds / step_s for name, seconds in per_step.items()}
        usage = {} if self._usage is None else self._usage.means()
        summary = bottleneck(
            shares,
            usage,
            device=session.device.type,
            workers=session.world_size,
            pipeline=1 if session.trainer is None else session.trainer.layout.pipeline,
            has_advice=total["steps"] >= LONG_STEPS and total["wall"] >= LONG_S,
        )
        shown = ", ".join(
            f"{name.replace('_', ' ')} {_percent(share)}" for name, share in shares.items()
        )
        which = (
            f"steps {last - round(total['steps']) + 1} to {last}, after {WARM_UP_STEPS} of warm-up"
        )
        session.say(f"{which}: {1 / step_s:.2f} a second; of the time: {shown}")
        session.say(summary)
        if session.in_job:
            # All steps, as the log counts them; the seconds are means of those after the warm-up.
            measures = {
                "steps": self._steps,
                "steps_per_s": 1 / step_s,
                "step_s": step_s,
            } | per_step
            measures |= {f"mean_{name}": value for name, value in usage.items()}
            finite = {
                name: round(value, 6) for name, value in measures.items() if math.isfinite(value)
            }
            Measured(summary=summary, measures=finite).write(environment.base_paths().model)

    def _emit(self, step: int) -> None:
        # A trial's curves are what it reports; its events would be lines of Ray's log.
        if (
            self._session.in_job
            and self._session.rank == 0
            and TRIAL not in environment.inherited()
        ):
            recent = self._recent
            self._recent = defaultdict(float)
            for name, value in _per_step(recent).items() if recent["steps"] else ():
                emit_event(Metric(name=name, value=round(value, 6), step=step))


def _per_step(totals: Mapping[str, float]) -> dict[str, float]:
    mean = {kind: seconds / totals["steps"] for kind, seconds in totals.items()}
    return {
        "step_s": mean["wall"],
        "data_s": mean.get("data", 0.0),
        # On a GPU the step only queues its work, and what reads the loss waits for it, so only
        # their sum means something.
        "forward_backward_s": sum(
            mean.get(kind, 0.0) for kind in ("compute", "communication", "wait")
        ),
        "checkpoint_s": mean.get("checkpoint", 0.0),
        "between_steps_s": mean["between_steps"],
    }


class _Span:
    """One timed span: a class, because a generator's context costs three times as much."""

    __slots__ = ("_begin_s", "_kind", "_measuring")

    def __init__(self, measuring: Measuring, kind: str) -> None:
        self._measuring = measuring
        self._kind = kind

    def __enter__(self) -> None:
        self._begin_s = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._measuring.seconds[self._kind] += time.perf_counter() - self._begin_s

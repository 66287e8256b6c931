"""Measure where the time of each training step goes, and say at the end what held the training up.

Rank 0 emits the seconds of a step by kind as metrics, prints two lines at the end, and writes ``training.json`` beside
the model, from which the result's manifest takes its figures.
"""

import atexit
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType

from raysm.bootstrap import environment
from raysm.bootstrap.log import emit_event
from raysm.contract.events import Metric
from raysm.contract.result import Measured
from raysm.workloads.training.loop.session import Observer, Session
from raysm.workloads.training.usage import Usage

WARM_UP_STEPS = 2
"""The first steps allocate, compile kernels and start loader workers, so they do not count."""

EMIT_EVERY_S = 2.0

WORTH_ACTING_ON = {"data": 0.10, "checkpoint": 0.05, "between_steps": 0.10}
"""Shares of the time below which advice would gain little; lower for checkpoints, because saving less often is free."""

CHECKPOINT_GOAL = 0.02
"""The share to which the advice on checkpoints leads."""

FULL_PERCENT, IDLE_PERCENT = 85.0, 57.5
"""A resource above the first can give no more, one below the second is far from busy."""

LONG_STEPS, LONG_S = 100, 60.0
"""A shorter run gets no advice, only the share."""


def bottleneck(
    shares: Mapping[str, float],
    usage: Mapping[str, float],
    *,
    device: str = "cpu",
    precision: str = "fp32",
    workers: int = 1,
    pipeline: int = 1,
    has_advice: bool = True,
) -> str:
    """Return one sentence: what took the most time, with its share, and what to try.

    Args:
        shares: Share of the time by kind (``data``, ``forward_backward``, ``checkpoint``, ``between_steps``), 0 to 1.
        usage: Means of rank 0's instance by the names of ``usage.usage_between``.
        device: Type of the device.
        precision: ``fp32`` or ``bf16``.
        workers: Total number.
        pipeline: Number of workers of a pipeline.
        has_advice: False leaves out what to try.
    """
    worth = [kind for kind, least in WORTH_ACTING_ON.items() if shares.get(kind, 0.0) >= least]
    kind = max(worth, key=lambda kind: shares[kind], default="forward_backward")
    percent = _percent(shares.get(kind, 0.0))
    cpu = usage.get("cpu_percent", 0.0)  # 0 means unknown, without psutil
    match kind:
        case "data":
            found = f"{percent} of the step waits for data"
            advice = "more loader workers (loader_workers=2 in training.batches), or data that is ready to use"
            if cpu >= FULL_PERCENT:
                advice = f"the CPUs are {cpu:.0f} % busy: prepare the data once and store it ready, or take more CPUs"
        case "checkpoint":
            found = f"{percent} of the time goes into checkpoints"
            factor = max(2, round(shares[kind] / CHECKPOINT_GOAL))
            advice = f"save {factor} times more rarely (Checkpoints(every_steps=…))"
        case "between_steps":
            found = f"{percent} of the time goes into the loop's own code between the steps"
            advice = "compute metrics and print more rarely"
        case _:
            found, advice = _computing(percent, cpu, usage, device, precision, workers, pipeline)
    if not has_advice:
        return found.partition(",")[0]
    return f"{found}: {advice}"


def _computing(
    percent: str, cpu: float, usage: Mapping[str, float], device: str, precision: str, workers: int, pipeline: int
) -> tuple[str, str]:
    found = f"{percent} of the step computes" + (" and communicates" if workers > 1 else "")
    bf16 = "precision='bf16', or " if device == "cuda" and precision == "fp32" else ""
    busy, name = (usage.get("gpu_percent", 100.0), "GPUs") if device == "cuda" else (cpu or 100.0, "CPUs")
    if busy >= IDLE_PERCENT:
        return (
            f"{found}, and nothing else holds it up",
            f"{bf16}more or faster {'GPUs' if device == 'cuda' else 'CPUs'}",
        )
    found += f", and yet the {name} are {busy:.0f} % busy"
    if pipeline > 1:
        return found, "more micro-batches, or schedule='interleaved'"
    if workers > 1:
        sent = usage.get("network_sent_bytes_per_s", 0.0)
        rate = f" ({sent / 1e6:,.0f} MB/s sent per instance)" if sent >= 1e6 else ""
        return found, f"a larger batch per worker, or {bf16}fewer instances, or a faster network{rate}"
    return found, f"a larger batch, or {'torch.compile' if device == 'cuda' else 'more workers per instance'}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def measure(session: Session, precision: str) -> None:
    """Begin to measure, unless ``RAYSM_MEASURE`` is 0."""
    if environment.measures():
        measuring = Measuring(session, precision)
        session.timer = measuring.span
        session.observers.append(measuring)
        atexit.register(measuring.on_end)  # scripts do not call session.end()


class Measuring(Observer):
    """Times the steps of one rank."""

    def __init__(
        self, session: Session, precision: str = "fp32", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._session, self._precision, self.clock = session, precision, clock
        self._steps = 0
        self._emitted_s = clock()
        self._over = False
        self._usage: Usage | None = None
        self._begin_s = clock()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._total: defaultdict[str, float] = defaultdict(float)
        self._recent: defaultdict[str, float] = defaultdict(float)
        if session.rank == 0:
            # In a job the launcher emits the usage of each instance and says what stays unknown.
            say = (lambda line: None) if session.in_job else session.say
            self._usage = Usage(session.host, lambda event: None, say, has_gpus=session.device.type == "cuda")
            self._usage.__enter__()

    def span(self, kind: str) -> "_Span":
        return _Span(self, kind)

    def on_step_end(self, step: int, loss: float) -> None:
        self._steps += 1
        now_s = self.clock()
        wall_s = now_s - self._begin_s
        # Rounding can make the parts larger than the whole.
        self.seconds["between_steps"] = max(0.0, wall_s - sum(self.seconds.values()))
        for kind, spent_s in {**self.seconds, "steps": 1, "wall": wall_s}.items():
            self._total[kind] += spent_s
            self._recent[kind] += spent_s
        self._begin_s = now_s
        self.seconds.clear()
        if self._steps == WARM_UP_STEPS:
            self._restart()
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
        total, session = self._total, self._session
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
            precision=self._precision,
            workers=session.world_size,
            pipeline=1 if session.trainer is None else session.trainer.layout.pipeline,
            has_advice=total["steps"] >= LONG_STEPS and total["wall"] >= LONG_S,
        )
        shown = ", ".join(f"{name.replace('_', ' ')} {_percent(share)}" for name, share in shares.items())
        which = f"steps {last - round(total['steps']) + 1} to {last}, after {WARM_UP_STEPS} of warm-up"
        session.say(f"{which}: {1 / step_s:.2f} a second; of the time: {shown}")
        session.say(summary)
        if session.in_job:
            # All steps, as the log counts them; the seconds are means of those after the warm-up.
            measures = {"steps": self._steps, "steps_per_s": 1 / step_s, "step_s": step_s} | per_step
            measures |= {f"mean_{name}": value for name, value in usage.items()}
            finite = {name: round(value, 6) for name, value in measures.items() if math.isfinite(value)}
            Measured(summary=summary, measures=finite).write(environment.base_paths().model)

    def _restart(self) -> None:
        self._begin_s = self.clock()
        self.seconds.clear()
        self._total.clear()
        self._recent.clear()

    def _emit(self, step: int) -> None:
        """Emit the means of the steps up to ``step`` since the last time; nothing reads events outside of a job."""
        if self._session.in_job and self._session.rank == 0:
            recent, self._recent = self._recent, defaultdict(float)
            for name, value in _per_step(recent).items() if recent["steps"] else ():
                emit_event(Metric(name=name, value=round(value, 6), step=step))


def _per_step(totals: Mapping[str, float]) -> dict[str, float]:
    mean = {kind: seconds / totals["steps"] for kind, seconds in totals.items()}
    return {
        "step_s": mean["wall"],
        "data_s": mean.get("data", 0.0),
        # On a GPU the agreement on the loss waits for what the step has only queued, so only their sum means something.
        "forward_backward_s": mean.get("compute", 0.0) + mean.get("communication", 0.0),
        "checkpoint_s": mean.get("checkpoint", 0.0),
        "between_steps_s": mean["between_steps"],
    }


class _Span:
    """One timed span: a class, because a generator's context costs three times as much."""

    __slots__ = ("_begin_s", "_kind", "_measuring")

    def __init__(self, measuring: Measuring, kind: str) -> None:
        self._measuring, self._kind = measuring, kind

    def __enter__(self) -> None:
        self._begin_s = self._measuring.clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._measuring.seconds[self._kind] += self._measuring.clock() - self._begin_s

"""A job's log for people, line by line: the user's lines as they are, raysm's events as words.

The command line and ``Job.logs`` share it. Progress and metrics are shown every few seconds, with their latest values.
"""

import time
from collections.abc import Callable, Iterable
from typing import TextIO

from raysm.client.logs.stream import LogLine
from raysm.client.units import duration, rate
from raysm.contract import events

__all__ = ["INTERVAL_S", "Phase", "Rendering", "metric_value", "sentence", "trial_sentence"]

INTERVAL_S = 5.0
"""A phase's progress is told at most this often, and when it is done; so are metrics."""

Clock = Callable[[], float]


class Phase:
    """How far a phase is, and how fast it moves: the rate counts from the phase's first event on."""

    def __init__(self, first: events.Progress, clock: Clock = time.monotonic) -> None:
        """Begin with the phase's first event."""
        self._first, self._clock = first, clock
        # As if just told: a phase that is short is one line, at its end.
        self._told_s = clock()

    def _speed(self, event: events.Progress) -> float:
        # By the times of the events: a log that is read in one go has the rates that it had when it was written.
        elapsed_s = event.time_s - self._first.time_s
        return (event.done - self._first.done) / elapsed_s if elapsed_s > 0 else 0.0

    def rate(self, event: events.Progress) -> str:
        """Return how fast it moves, ``500 rows/s``; nothing where that is not known yet."""
        speed = self._speed(event)
        return rate(speed, event.unit) if speed > 0 else ""

    def is_due(self, event: events.Progress) -> bool:
        """Whether this event is to be shown; the caller shows it."""
        now_s = self._clock()
        # The last event is always shown, so that a phase is seen to end.
        due = event.done >= event.total or now_s - self._told_s >= INTERVAL_S
        if due:
            self._told_s = now_s
        return due

    def sentence(self, event: events.Progress) -> str:
        """Say how far it is."""
        speed = self._speed(event)
        # A phase may have nothing to do; then it is done.
        share = event.done / event.total if event.total else 1.0
        pace = f", {rate(speed, event.unit)}" if speed > 0 else ""
        left = f", {duration((event.total - event.done) / speed)} left" if pace and event.done < event.total else ""
        return f"{event.phase}: {share:.0%} ({event.done:,} of {event.total:,} {event.unit}{pace}{left})"


class Rendering:
    """Turns the lines of one job's log into text; remembers what it has told of progress and metrics."""

    def __init__(self, *, metrics: bool = False, reasons: bool = True, clock: Clock = time.monotonic) -> None:
        """Begin before the first line.

        Args:
            metrics: Tell metrics too.
            reasons: Say why an instance failed; False where the reason is told once, at the end.
            clock: Seconds; tells whether a few of them have passed.
        """
        self._metrics = _Latest(clock) if metrics else None
        self._reasons, self._clock = reasons, clock
        self._remarks: set[str] = set()
        self._phases: dict[str, Phase] = {}
        self._untold: dict[str, events.Progress] = {}

    def render(self, host: str, text: str) -> list[str]:
        """Return the lines that a line of ``host``'s log becomes: often one, of most progress and metrics none."""
        match events.parse(text):
            case None:
                return self._text(host, text)
            case events.State(name="failed") as state if not self._reasons:
                return [f"{state.host} failed".strip()]
            case events.State(name="failed") as state if _remark(state.host, state.detail) in self._remarks:
                return []
            case events.State() as state:
                return [text] if (text := sentence(state)) else []
            case events.Progress() as progress:
                return self._progress(progress)
            case events.Metric() as metric:
                return self._metrics.add(metric) if self._metrics else []
            case events.Trial() as trial:
                # Of hundreds that begin and end within seconds, what they found is enough.
                return [] if trial.status == "running" else [trial_sentence(trial)]

    def _text(self, host: str, text: str) -> list[str]:
        # An instance that fails says so in its log for readers of that log alone, before the event that says it too.
        if text.startswith(_remark(host, "")):
            if not self._reasons:
                return []
            self._remarks.add(text.rstrip())
        return [f"{host} | {text}"]

    def rest(self) -> list[str]:
        """Return what has been held back: at the end of a log, how far each phase had come."""
        untold = [self._phases[name].sentence(event) for name, event in self._untold.items()]
        self._untold.clear()
        return untold + (self._metrics.rest() if self._metrics else [])

    def write(self, lines: Iterable[LogLine], out: TextIO) -> None:
        """Write a log as it comes, and what is left at its end."""
        for line in lines:
            for text in self.render(line.host, line.text):
                out.write(f"{text}\n")
                # Through a pipe, too, who follows sees a line when it comes.
                out.flush()
        out.writelines(f"{text}\n" for text in self.rest())
        out.flush()

    def phase(self, event: events.Progress) -> Phase:
        """Return the phase of an event, which may be its first."""
        if event.phase not in self._phases:
            self._phases[event.phase] = Phase(event, self._clock)
        return self._phases[event.phase]

    def _progress(self, event: events.Progress) -> list[str]:
        phase = self.phase(event)
        self._untold[event.phase] = event
        if not phase.is_due(event):
            return []
        del self._untold[event.phase]
        return [phase.sentence(event)]


class _Latest:
    """The latest value of each metric, told on one line of the job and one of each instance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_s: float | None = None
        self._untold: dict[str, dict[str, events.Metric]] = {}

    def add(self, metric: events.Metric) -> list[str]:
        self._untold.setdefault(metric.host, {})[metric.name] = metric
        now_s = self._clock()
        # The interval begins with the first value: those that come right behind it belong on the same line.
        if self._told_s is None:
            self._told_s = now_s
        if now_s - self._told_s < INTERVAL_S:
            return []
        self._told_s = now_s
        return self.rest()

    def rest(self) -> list[str]:
        # The job's own come first: their host is the empty one.
        lines = [_values(host, list(metrics.values())) for host, metrics in sorted(self._untold.items())]
        self._untold.clear()
        return lines


def _remark(host: str, reason: str) -> str:
    return f"raysm: {host} failed: {reason}"


def _values(host: str, metrics: list[events.Metric]) -> str:
    steps = [metric.step for metric in metrics if metric.step is not None]
    step = f" at step {max(steps)}" if steps else ""
    values = ", ".join(f"{metric.name} = {metric_value(metric.value)}" for metric in metrics)
    return f"{host or 'metrics'}{step}: {values}"


def trial_sentence(trial: events.Trial) -> str:
    """Say how a trial of a sweep is: ``trial 3 done: loss = 0.25 (lr = 0.01, batch = 32)``."""
    params = ", ".join(f"{name} = {_shown(value)}" for name, value in trial.params.items())
    metrics = ", ".join(f"{name} = {metric_value(value)}" for name, value in trial.metrics.items())
    text = trial.reason.splitlines()[0] if trial.reason else metrics
    return f"trial {trial.number} {trial.status}{f': {text}' if text else ''}{f' ({params})' if params else ''}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def metric_value(value: float) -> str:
    """Return a metric's value for people; by its size, not by whether it happens to be whole: they look alike."""
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.6g}"


def sentence(event: events.State) -> str:
    """Say a state as a person would; one that this version does not know is shown by its name; empty is nothing."""
    counted = f"{event.count} of {event.total} instances" if event.count is not None else ""
    match event.name:
        case "joined":
            text = f"{event.host} joined: {counted}"
        case "formed":
            text = f"cluster formed: {counted}" if counted else "cluster formed"
        case "dashboard":
            # Its address asks for the job's token: `raysm dashboard` opens it, and the caller knows the job's name.
            return ""
        case "lost":
            text = f"{event.host} was lost"
        case "rejoined":
            text = f"{event.host} rejoined"
        case "running":
            text = "running the workload"
        case "session":
            text = "the session"
        case "gathering":
            text = "gathering the result on the head"
        case "done":
            text = "done"
        case name:
            text = f"{event.host} {name}".strip()
    return f"{text}: {event.detail}" if event.detail else text

"""A job's log for people: the user's lines as they are, raysm's events in words.

The command line and ``Job.logs`` share it. Progress and metrics are shown every few seconds, with
their latest values.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from raysm.core.client.logs.stream import LogLine, remark
from raysm.core.client.units import rate
from raysm.core.protocol import events
from raysm.core.protocol.names import natural
from raysm.core.protocol.terminal_text import visible
from raysm.core.request.durations import duration

INTERVAL_S = 5.0
"""Seconds between two lines about a phase's progress, or about metrics; the end of a phase is
always shown."""

Clock = Callable[[], float]


class Phase:
    def __init__(self, first: events.Progress, clock: Clock = time.monotonic) -> None:
        self._first = first
        self._clock = clock
        # As if it had just been shown: a short phase then takes one line, at its end.
        self._shown_s = clock()

    def rate(self, event: events.Progress) -> str:
        speed = self._speed(event)
        return rate(speed, event.unit) if speed > 0 else ""

    def _speed(self, event: events.Progress) -> float:
        # From the times of the events, so that a log that is read later shows the original rates.
        elapsed_s = event.time_s - self._first.time_s
        return (event.done - self._first.done) / elapsed_s if elapsed_s > 0 else 0.0

    def is_due(self, event: events.Progress) -> bool:
        now_s = self._clock()
        due = event.done >= event.total or now_s - self._shown_s >= INTERVAL_S
        if due:
            self._shown_s = now_s
        return due

    def sentence(self, event: events.Progress) -> str:
        """Return progress in words: ``train: 12% (12 of 100 rows, 1 rows/s, 1 min 28 s left)``."""
        speed = self._speed(event)
        # A phase without work is done.
        share = event.done / event.total if event.total else 1.0
        pace = f", {rate(speed, event.unit)}" if speed > 0 else ""
        left = (
            f", {duration((event.total - event.done) / speed)} left"
            if pace and event.done < event.total
            else ""
        )
        return (
            f"{event.phase}: {share:.0%} "
            f"({event.done:,} of {event.total:,} {event.unit}{pace}{left})"
        )


class Rendering:
    """Turns the lines of one job's log into text; remembers shown progress and metrics."""

    def __init__(
        self, *, metrics: bool = False, reasons: bool = True, clock: Clock = time.monotonic
    ) -> None:
        self._shows_metrics = metrics
        self._shows_reasons = reasons
        self._clock = clock
        self._remarks: set[str] = set()
        self._phases: dict[str, Phase] = {}
        self._progress: dict[str, events.Progress] = {}
        self._metrics: dict[str, dict[str, events.Metric]] = {}
        self._metrics_shown_s: float | None = None

    def render(self, host: str, text: str) -> list[str]:
        """Return a line of the log as lines that can be printed."""
        return list(map(visible, self._render(host, text)))

    def _render(self, host: str, text: str) -> list[str]:
        match events.parse(text):
            case None:
                return self._text(host, text)
            case events.State(name="failed") as state if not self._shows_reasons:
                return [f"{state.host} failed".strip()]
            case events.State(name="failed") as state if (
                remark(state.host, state.detail) in self._remarks
            ):
                return []
            case events.State() as state:
                return [text] if (text := sentence(state)) else []
            case events.Progress() as progress:
                self._progress[progress.phase] = progress
                return (
                    [self._take_progress(progress.phase)]
                    if self.phase(progress).is_due(progress)
                    else []
                )
            case events.Metric() as metric:
                return self._add_metric(metric) if self._shows_metrics else []
            # A session's client shows its calls; digests are for the client that reads the result.
            case events.SessionCall() | events.Digest():
                return []
            case events.Trial() as trial:
                # Only the end of a trial is shown, because there may be hundreds of short ones.
                return [] if trial.status == "running" else [trial_sentence(trial)]

    def _text(self, host: str, text: str) -> list[str]:
        # An instance that fails writes its reason as a line, and then as an event.
        if text.startswith(remark(host, "")):
            if not self._shows_reasons:
                return []
            self._remarks.add(text.rstrip())
        return [f"{host} | {text}"]

    def rest(self) -> list[str]:
        """Return the lines that were held back, for the end of a log.

        They are the progress of each phase, and the metrics.
        """
        lines = [self._take_progress(name) for name in list(self._progress)] + self._take_metrics()
        return list(map(visible, lines))

    def write(
        self, lines: Iterable[LogLine], out: TextIO, on_line: Callable[[str], None] | None = None
    ) -> None:
        for line in lines:
            if on_line is not None:
                on_line(line.text)
            for text in self.render(line.host, line.text):
                out.write(f"{text}\n")
                out.flush()  # so that a reader of a pipe sees the line now
        out.writelines(f"{text}\n" for text in self.rest())
        out.flush()

    def phase(self, event: events.Progress) -> Phase:
        if event.phase not in self._phases:
            self._phases[event.phase] = Phase(event, self._clock)
        return self._phases[event.phase]

    def _take_progress(self, name: str) -> str:
        return self._phases[name].sentence(self._progress.pop(name))

    def _add_metric(self, metric: events.Metric) -> list[str]:
        self._metrics.setdefault(metric.host, {})[metric.name] = metric
        now_s = self._clock()
        # The interval begins with the first value: those that come right after it belong on the
        # same line.
        if self._metrics_shown_s is None:
            self._metrics_shown_s = now_s
        if now_s - self._metrics_shown_s < INTERVAL_S:
            return []
        self._metrics_shown_s = now_s
        return self._take_metrics()

    def _take_metrics(self) -> list[str]:
        lines = []
        # The job's own come first: their host is empty.
        for host, metrics in sorted(self._metrics.items(), key=lambda item: natural(item[0])):
            steps = [metric.step for metric in metrics.values() if metric.step is not None]
            step = f" at step {max(steps)}" if steps else ""
            values = ", ".join(
                f"{metric.name} = {metric_value(metric.value)}" for metric in metrics.values()
            )
            lines.append(f"{host or 'metrics'}{step}: {values}")
        self._metrics.clear()
        return lines


def trial_sentence(trial: events.Trial) -> str:
    params = ", ".join(
        f"{name} = {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in trial.params.items()
    )
    metrics = ", ".join(f"{name} = {metric_value(value)}" for name, value in trial.metrics.items())
    text = trial.reason.splitlines()[0] if trial.reason else metrics
    return (
        f"trial {trial.number} {trial.status}"
        f"{f': {text}' if text else ''}{f' ({params})' if params else ''}"
    )


def metric_value(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.6g}"


def marked_value(value: float, not_finite_from: str = "") -> str:
    """Return a metric's last value, with a mark if it is not finite: ``⚠ nan from step 3``."""
    if math.isfinite(value):
        return metric_value(value)
    begin = f" from {not_finite_from}" if not_finite_from else ""
    return f"⚠ {metric_value(value)}{begin}"


def sentence(event: events.State) -> str:
    """Return a state in words, an unknown one by its name; empty if users need not see it."""
    counted = f"{event.count} of {event.total} instances" if event.count is not None else ""
    if event.name in ("dashboard", "control"):
        # Their addresses ask for the job's token: `raysm dashboard` and `raysm stacks` have it.
        return ""
    texts = {
        "joined": f"{event.host} joined: {counted}",
        "formed": f"cluster formed: {counted}" if counted else "cluster formed",
        "lost": f"{event.host} was lost",
        "rejoined": f"{event.host} rejoined",
        "running": "running the workload",
        "session": "the session accepts calls",
        "stalled": "the job has stalled",
        "recovered": "the job goes on",
        "gathering": "gathering the result on the head",
        "done": "done",
    }
    text = texts.get(event.name, f"{event.host} {event.name}".strip())
    return f"{text}: {event.detail}" if event.detail else text

"""What a person sees while a job runs: bars on a terminal, plain lines in a pipe."""

import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from raysm.contract import events

__all__ = ["Display"]

PLAIN_INTERVAL_S = 5.0
"""Without a terminal, a phase's progress is printed at most this often, and when it is done."""


REMEMBERED_LINES = 2_000
"""Lines of the log, the last ones, of which the display knows that it has shown them."""


class Display:
    """Shows the log lines of a job's instances; use as a context manager.

    Attributes:
        job: The job's name, by which its token is asked for; None where nobody may ask.
        forming_s: Seconds from the beginning until the cluster was formed; None until then.
    """

    def __init__(self, console: Console) -> None:
        """Draw on ``console``: bars where it is a terminal, else lines only."""
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._phases: dict[str, _Phase] = {}
        self._shown: deque[str] = deque(maxlen=REMEMBERED_LINES)
        self.job: str | None = None
        self.forming_s: float | None = None
        self._started_s = time.monotonic()

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def line(self, host: str, text: str) -> None:
        """Show one line of an instance's log: an event as what it means, anything else as it is."""
        event = events.parse(text)
        if event is None:
            self._shown.append(text.rstrip())
            self._print(f"{host} | {text}")
        elif isinstance(event, events.State):
            # The reason of a failure is told once, at the end, by whoever asks for the result.
            self._print(_sentence(event) if event.name != "failed" else f"{event.host} failed".strip())
            if event.name == "formed":
                self.forming_s = time.monotonic() - self._started_s
            elif event.name == "dashboard" and self.job:
                self._print(f"the dashboard asks for the job's token: raysm token {self.job}")
        elif isinstance(event, events.Progress):
            self._progress(event)

    def has_shown(self, lines: Iterable[str]) -> bool:
        """Whether each of ``lines`` was, not long ago, a line of the log, or the end of one that has a label."""
        return all(any(shown.endswith(line.rstrip()) for shown in self._shown) for line in lines)

    def say(self, text: str) -> None:
        """Print a line of raysm's own."""
        self._print(text)

    def _print(self, text: str) -> None:
        # The log may hold anything: no markup, no highlighting, no wrapping of what others may want to grep.
        self._console.print(Text(text), soft_wrap=True, highlight=False)

    def _progress(self, event: events.Progress) -> None:
        phase = self._phases.get(event.phase)
        if phase is None:
            bar = self._bars.add_task(event.phase, total=event.total, unit=event.unit, rate="")
            phase = self._phases[event.phase] = _Phase(bar, event)
        self._bars.update(phase.bar, completed=event.done, total=event.total, rate=phase.rate(event))
        if not self._console.is_terminal and phase.is_due(event):
            self._print(phase.sentence(event))


class _Phase:
    """One bar, and how fast it moves: the rate counts from the phase's first event on."""

    def __init__(self, bar: TaskID, first: events.Progress) -> None:
        self.bar = bar
        self._first = first
        self._printed_s = time.monotonic()

    def _speed(self, event: events.Progress) -> float:
        elapsed_s = event.time_s - self._first.time_s
        return (event.done - self._first.done) / elapsed_s if elapsed_s > 0 else 0.0

    def rate(self, event: events.Progress) -> str:
        speed = self._speed(event)
        return f"{speed:,.0f} {event.unit}/s" if speed else ""

    def is_due(self, event: events.Progress) -> bool:
        now_s = time.monotonic()
        due = event.done >= event.total or now_s - self._printed_s >= PLAIN_INTERVAL_S
        if due:
            self._printed_s = now_s
        return due

    def sentence(self, event: events.Progress) -> str:
        speed = self._speed(event)
        share = event.done / event.total if event.total else 1.0
        rate = f", {speed:,.0f} {event.unit}/s" if speed else ""
        left = f", {(event.total - event.done) / speed:,.0f} s left" if speed and event.done < event.total else ""
        return f"{event.phase}: {share:.0%} ({event.done:,} of {event.total:,} {event.unit}{rate}{left})"


def _sentence(event: events.State) -> str:
    """Say a state as a person would; one that this version does not know is shown by its name."""
    counted = f"{event.count} of {event.total} instances" if event.count is not None else ""
    match event.name:
        case "joined":
            text = f"{event.host} joined: {counted}"
        case "formed":
            text = f"cluster formed: {counted}" if counted else "cluster formed"
        case "dashboard":
            text = f"dashboard {event.address}"
        case "lost":
            text = f"{event.host} was lost"
        case "rejoined":
            text = f"{event.host} rejoined"
        case "running":
            text = "running the workload"
        case "gathering":
            text = "gathering the result on the head"
        case "done":
            text = "done"
        case name:
            text = f"{event.host} {name}".strip()
    return f"{text}: {event.detail}" if event.detail else text

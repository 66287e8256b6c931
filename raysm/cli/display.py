"""What a person sees of a running job: its lines, its progress, and in the end where its time went."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from raysm.client.job.description import Description, SecondaryStatus
from raysm.client.logs.rendering import Rendering
from raysm.contract import events

__all__ = ["Display", "Times"]

WAITS = (
    SecondaryStatus.STARTING,
    SecondaryStatus.PENDING,
    SecondaryStatus.LAUNCHING,
    SecondaryStatus.PREPARING,
)
"""Statuses of a job that has no instances yet."""

DOWNLOADS = (SecondaryStatus.DOWNLOADING, SecondaryStatus.DOWNLOADING_IMAGE)

LEAST_S = 0.05
"""Parts that would be shown as 0.0 s are left out."""


@dataclass(kw_only=True)
class Times:
    """When what happened, in seconds since the epoch; None where it was not seen."""

    started_s: float
    """The command began."""
    sent_s: float | None = None
    """The service had the job."""
    formed_s: float | None = None
    """The cluster was formed for the first time."""
    done_s: float | None = None
    """The head had the whole result."""
    ended_s: float | None = None
    """The result was here."""
    described: Description | None = field(default=None, repr=False)
    """How the service says the job went."""
    is_billed: bool = False
    """Whether the job ran on AWS, where it waits for instances; on this machine it waits for cores."""

    def parts(self, phases_s: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Return the whole time in seconds, and its parts by their names, in their order.

        Args:
            phases_s: Phases of the workload, as the manifest has them.
        """
        assert self.ended_s is not None, "the command has ended"
        whole_s = self.ended_s - self.started_s
        sent_s = self.started_s if self.sent_s is None else self.sent_s
        # Clocks of instances may differ a little from the one here: no part is negative.
        formed_s = min(max(sent_s, self.formed_s or sent_s), self.ended_s)
        done_s = min(max(formed_s, self.done_s or self.ended_s), self.ended_s)
        before_s = formed_s - sent_s
        waiting_s = min(self._spent_s(WAITS), before_s)
        downloading_s = min(self._spent_s(DOWNLOADS), before_s - waiting_s)
        phased_s = sum(phases_s.values())
        parts = {
            "preparing and sending": sent_s - self.started_s,
            "waiting for instances" if self.is_billed else "waiting for cores": waiting_s,
            "downloading": downloading_s,
            "forming the cluster": before_s - waiting_s - downloading_s,
            "starting the workload" if phases_s else "running the workload": max(0.0, done_s - formed_s - phased_s),
            **phases_s,
            "storing and bringing the result": self.ended_s - done_s,
        }
        return whole_s, {name: seconds for name, seconds in parts.items() if seconds >= LEAST_S or name in phases_s}

    def _spent_s(self, statuses: tuple[SecondaryStatus, ...]) -> float:
        if self.described is None:
            return 0.0
        spent = [
            (end - begin).total_seconds()
            for status, begin, end in self.described.transitions
            if status in statuses and begin is not None and end is not None
        ]
        return sum(spent)


REMEMBERED_LINES = 2_000
"""Lines of the log, the last ones, of which the display knows that it has shown them."""


class Display:
    """Shows the log lines of a job's instances; use as a context manager.

    Attributes:
        console: Where it draws.
        way_in: How the dashboard is looked at; None where nobody is to be told.
        formed_s: When the cluster was formed for the first time, seconds since the epoch; None until then.
        done_s: When the head had the whole result; None until then.
    """

    def __init__(self, console: Console) -> None:
        """Draw on ``console``: bars where it is a terminal, else lines only."""
        self.console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            # Not rich's own speed, which counts from when a bar is moved: a log may be read late.
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._shown: deque[str] = deque(maxlen=REMEMBERED_LINES)
        # The reason of a failure is told once, at the end, by whoever asks for the result.
        self._rendering = Rendering(reasons=False)
        self._tasks: dict[str, TaskID] = {}
        self.way_in: str | None = None
        self.formed_s: float | None = None
        self.done_s: float | None = None

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
        match event:
            case events.Progress() if self.console.is_terminal:
                self._move_bar(event)
                return
            case None:
                self._shown.append(text.rstrip())
        for line in self._rendering.render(host, text):
            self._print(line)
        # Behind the event's own line: that one says where the dashboard is, the note how to get in.
        match event:
            case events.State():
                self._note(event)

    def _note(self, state: events.State) -> None:
        if state.name == "formed":
            self.formed_s = self.formed_s or state.time_s
        elif state.name == "done":
            self.done_s = state.time_s
        elif state.name == "dashboard" and self.way_in:
            self._print(self.way_in)

    def has_shown(self, lines: Iterable[str]) -> bool:
        """Whether each of ``lines`` was, not long ago, a line of the log, or the end of one that has a label."""
        return all(any(shown.endswith(line.rstrip()) for shown in self._shown) for line in lines)

    def say(self, text: str) -> None:
        """Print a line of raysm's own."""
        self._print(text)

    def _print(self, text: str) -> None:
        # The log may hold anything: no markup, no highlighting, no wrapping of what others may want to grep.
        self.console.print(Text(text), soft_wrap=True, highlight=False)

    def _move_bar(self, event: events.Progress) -> None:
        if event.phase not in self._tasks:
            self._tasks[event.phase] = self._bars.add_task(event.phase, total=event.total, unit=event.unit, rate="")
        rate = self._rendering.phase(event).rate(event)
        self._bars.update(self._tasks[event.phase], completed=event.done, total=event.total, rate=rate)

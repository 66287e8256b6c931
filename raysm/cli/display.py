"""The display of a running job: log lines, progress bars, and how long each part took."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from raysm.core.client.job.description import NEVER_RAN, Description, SecondaryStatus
from raysm.core.client.logs.rendering import Rendering
from raysm.core.protocol import events

DOWNLOADS = (SecondaryStatus.DOWNLOADING, SecondaryStatus.DOWNLOADING_IMAGE)
MIN_PART_S = 0.05
"""Shorter parts are left out: they would be shown as 0.0 s."""
INSTALLED = re.compile(r"raysm: installed \d+ (?:locked )?packages, .* in (\d+\.\d+) s\b")


@dataclass(kw_only=True)
class Times:
    """Times of a command's phases, in seconds since the epoch; None if a phase was not seen."""

    started_s: float
    sent_s: float | None = None
    formed_s: float | None = None
    """When the cluster was formed for the first time."""
    done_s: float | None = None
    ended_s: float | None = None
    installing_s: float = 0.0
    """How long the slowest instance installed packages."""
    described: Description | None = field(default=None, repr=False)
    is_billed: bool = False
    """True if the job ran on AWS, where it waits for instances; on this machine it waits for
    cores."""

    def parts(self, phases_s: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        assert self.ended_s is not None, "the command has ended"
        whole_s = self.ended_s - self.started_s
        sent_s = self.started_s if self.sent_s is None else self.sent_s
        # The clocks of instances and of this machine differ a little; no part may be negative.
        formed_s = min(max(sent_s, self.formed_s or sent_s), self.ended_s)
        done_s = min(max(formed_s, self.done_s or self.ended_s), self.ended_s)
        before_s = formed_s - sent_s
        waiting_s = min(self._spent_s(NEVER_RAN), before_s)
        downloading_s = min(self._spent_s(DOWNLOADS), before_s - waiting_s)
        installing_s = min(self.installing_s, before_s - waiting_s - downloading_s)
        phased_s = sum(phases_s.values())
        after_s = self.ended_s - done_s
        stored = self._transitions((SecondaryStatus.UPLOADING,))
        bringing_s = min(max(0.0, self.ended_s - stored[-1][1]), after_s) if stored else after_s
        storing_s = min(self._spent_s((SecondaryStatus.UPLOADING,)), after_s - bringing_s)
        parts = {
            "preparing and sending": sent_s - self.started_s,
            "waiting for instances" if self.is_billed else "waiting for cores": waiting_s,
            "downloading image and inputs"
            if self.is_billed
            else "downloading the inputs": downloading_s,
            "installing packages": installing_s,
            "forming the cluster": before_s - waiting_s - downloading_s - installing_s,
            "starting the workload" if phases_s else "running the workload": max(
                0.0, done_s - formed_s - phased_s
            ),
            **phases_s,
            "ending the cluster": after_s - bringing_s - storing_s,
            "storing the result": storing_s,
            "bringing the result" if stored else "storing and bringing the result": bringing_s,
        }
        return whole_s, {
            name: seconds
            for name, seconds in parts.items()
            if seconds >= MIN_PART_S or name in phases_s
        }

    def _spent_s(self, statuses: tuple[SecondaryStatus, ...]) -> float:
        # A clock that was set back gives the service's steps less than no time.
        return sum(max(0.0, end - begin) for begin, end in self._transitions(statuses))

    def _transitions(self, statuses: tuple[SecondaryStatus, ...]) -> list[tuple[float, float]]:
        return [
            (begin.timestamp(), end.timestamp())
            for status, begin, end in (() if self.described is None else self.described.transitions)
            if status in statuses and begin is not None and end is not None
        ]


REMEMBERED_LINES = 2_000
"""The number of shown log lines that ``has_shown`` remembers."""


class Display:
    """Shows the log lines of a job's instances; use as a context manager.

    Attributes:
        console: Where it draws.
        way_in: A line on how to open the dashboard, printed when it runs; None prints nothing.
        formed_s: When the cluster was formed for the first time, seconds since the epoch; None
            until then.
        done_s: When the head had the whole result; None until then.
        installing_s: How long the slowest instance installed packages.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            # Not rich's own rate, which is wrong if the log is read late.
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._shown: deque[str] = deque(maxlen=REMEMBERED_LINES)
        # The reason of a failure is printed once, by the command that fetches the result.
        self._rendering = Rendering(reasons=False)
        self._tasks: dict[str, TaskID] = {}
        self.way_in: str | None = None
        self.formed_s: float | None = None
        self.done_s: float | None = None
        self.installing_s = 0.0

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def line(self, host: str, text: str) -> None:
        """Show one line of an instance's log; events are rendered as sentences or bars."""
        event = events.parse(text)
        match event:
            case events.Progress() if self.console.is_terminal:
                if event.phase not in self._tasks:
                    total = event.total
                    unit = event.unit
                    self._tasks[event.phase] = self._bars.add_task(
                        event.phase, total=total, unit=unit, rate=""
                    )
                rate = self._rendering.phase(event).rate(event)
                self._bars.update(
                    self._tasks[event.phase], completed=event.done, total=event.total, rate=rate
                )
                return
            case None:
                self._shown.append(text.rstrip())
                if installed := INSTALLED.match(text):
                    self.installing_s = max(self.installing_s, float(installed[1]))
        for line in self._rendering.render(host, text):
            self._print(line)
        # After the event's own line, which says where the dashboard is.
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
        """Return whether all ``lines`` are among the last log lines that were shown.

        Their labels may be missing.
        """
        return all(any(shown.endswith(line.rstrip()) for shown in self._shown) for line in lines)

    def say(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        # The log may contain anything: no markup, no highlighting, and no wrapping, so that users
        # can grep it.
        self.console.print(Text(text), soft_wrap=True, highlight=False)

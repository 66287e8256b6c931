"""What a person sees while a job runs: bars on a terminal, plain lines in a pipe."""

from collections import deque
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from raysm.client.logs.rendering import Rendering
from raysm.contract import events

__all__ = ["Display"]


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

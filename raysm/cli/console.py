"""Consoles, and printing answers."""

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import rich.console
from rich.segment import Segment
from rich.text import Text

from raysm.core.protocol.terminal_text import visible


class Console(rich.console.Console):
    """Raises BrokenPipeError when its reader is gone; rich's console would exit the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the reader of the output has gone")

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterable[Segment]:
        """Yield the segments of what is printed, with controls escaped that come from its text.

        Controls that come from rich are kept.
        """
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def say_aside(text: str) -> None:
    """Print a line to stderr, since a program may read stdout."""
    print(visible(text), file=sys.stderr, flush=True)


def say(text: str, console: rich.console.Console) -> None:
    """Print a line verbatim and unwrapped: a row's key may look like markup, and users grep."""
    console.print(Text(text), soft_wrap=True)


def aligned(
    table: Iterable[Sequence[str]], justify: Callable[[str, int], str] = str.ljust
) -> list[str]:
    """Return a table as lines.

    rich's Table truncates wide rows, but programs may read the output.
    """
    rows = list(table)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(justify, row, widths)).rstrip() for row in rows]


def say_last(console: rich.console.Console, text: str) -> None:
    """Print a line where the user can still read it: ``console``, stderr, or the terminal.

    The first of the three that works is used.

    Ctrl-C in ``raysm run x.py 2>&1 | tee log`` ends ``tee`` too. The line must not fail then, since
    the job is stopped after it.
    """
    with contextlib.suppress(OSError):
        say(text, console)
        return
    line = f"{visible(text)}\n".encode()
    try:
        os.write(2, line)
    except OSError:
        # Without a terminal there is no reader left.
        with contextlib.suppress(OSError), open("/dev/tty", "wb", buffering=0) as terminal:
            terminal.write(line)


OF_THE_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def is_of_output(error: OSError) -> bool:
    """Return whether stdout or stderr could not be written although it has a reader.

    The disk may be full, for example.
    """
    # An error of a file that was opened by its name has the name.
    return error.errno in OF_THE_OUTPUT and error.filename is None


def discard_unread_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


class Answer(Protocol):
    def as_dict(self) -> Mapping[str, Any]: ...


A = TypeVar("A", bound=Answer)


def print_answer(
    answer: A, lines: Callable[[A], Iterable[str]], console: rich.console.Console, *, as_json: bool
) -> None:
    if as_json:
        # Not by the console, which would wrap and color it for other programs.
        print(json.dumps(answer.as_dict(), indent=1))
        return
    for line in lines(answer):
        # As Text, because names and failure reasons may contain square brackets, rich's markup.
        console.print(Text(line), soft_wrap=True)


_BEGAN_S = time.time() - time.monotonic()


def now_s() -> float:
    """Return the seconds since the epoch by a clock that was set at the start.

    Thus nothing takes less than no time.

    A clock of the day may be set back while a command runs.
    """
    return _BEGAN_S + time.monotonic()


def process_started_s() -> float:
    """Return when this process started, in seconds since the epoch; without ``/proc``, now."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return (
            time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        )
    except (OSError, AttributeError):
        return time.time()

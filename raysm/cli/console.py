"""Consoles, printing answers, and signals that end a command."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, Protocol, TypeVar

import rich.console
from rich.text import Text

__all__ = ["Console", "Interrupts", "discard_unread_output", "interruptible", "print_answer", "say_last"]


class Console(rich.console.Console):
    """Raises BrokenPipeError when its reader is gone; rich's own console exits the program at once."""

    def on_broken_pipe(self) -> None:
        """Pass the error on: a running job has to be stopped first.

        Raises:
            BrokenPipeError: Always.
        """
        raise BrokenPipeError("the reader of the output has gone")


def say_last(console: rich.console.Console, text: str) -> None:
    """Print a line where the user can still read it: on ``console``, else on stderr, else on the terminal.

    Ctrl-C in ``raysm run x.py 2>&1 | tee log`` ends ``tee`` too. The line must not fail then, since the job is stopped
    after it.
    """
    try:
        console.print(Text(text), soft_wrap=True, highlight=False)
        return
    except OSError:
        pass
    line = f"{text}\n".encode()
    try:
        os.write(2, line)
    except OSError:
        # Without a terminal there is no reader left.
        with contextlib.suppress(OSError), open("/dev/tty", "wb", buffering=0) as terminal:
            terminal.write(line)


def discard_unread_output() -> None:
    """Drop what stdout and stderr still hold for a reader that is gone, so that Python's exit does not fail on it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


class Answer(Protocol):
    """What a command answers with."""

    def as_dict(self) -> Mapping[str, Any]:
        """Return it as JSON has it."""
        ...


A = TypeVar("A", bound=Answer)


def print_answer(
    answer: A, lines: Callable[[A], Iterable[str]], console: rich.console.Console, *, as_json: bool
) -> None:
    """Print an answer as JSON, or as the lines that a view makes of it."""
    if as_json:
        # Not by the console: it would wrap and colour what another program reads.
        print(json.dumps(answer.as_dict(), indent=1))
        return
    for line in lines(answer):
        # Text, and not markup: names of rows and reasons of the service may hold square brackets.
        console.print(Text(line), soft_wrap=True)


NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, ``kill``, and a terminal that is closed; Windows has no SIGHUP."""


class Interrupts:
    """Raises KeyboardInterrupt where a signal comes; where it comes within ``held``, at its end."""

    def __init__(self) -> None:
        """Begin with none."""
        self._is_held = self._is_due = False

    def take(self, signum: int, frame: FrameType | None) -> None:
        """Take a signal, as Python calls a handler.

        Raises:
            KeyboardInterrupt: Nothing holds it back.
        """
        # The second one is not held: what is written may be stuck, in a pipe that nobody reads.
        if self._is_held and not self._is_due:
            self._is_due = True
            return
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold a signal back while the block runs.

        Raises:
            KeyboardInterrupt: One came meanwhile.
        """
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_due:
            self._is_due = False
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Take SIGTERM and a closed terminal like Ctrl-C while the block runs; yield what can hold them back."""
    interrupts = Interrupts()
    signals = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    # What somebody ignores on purpose, as nohup does, stays ignored.
    previous = {one: signal.getsignal(one) for one in signals if signal.getsignal(one) is not signal.SIG_IGN}
    for one in previous:
        signal.signal(one, interrupts.take)
    try:
        yield interrupts
    finally:
        for one, action in previous.items():
            signal.signal(one, action)

"""Streams that stand for sys.stdout and sys.stderr: what a call prints goes to whoever asked for it.

In the driver several calls share the process: each text goes to the one that printed it. raysm's own events, which
``raysm.report`` prints, go to the job's log in any case: a call's metrics are the job's.
"""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from raysm.contract import events
from raysm.workloads.session.output import Output

__all__ = ["RoutedStream", "StandIn", "events_apart", "routed"]

Route = Callable[[], Output | None]
"""Returns whose output the calling thread's is; None is the job's log."""


class StandIn(io.TextIOBase):
    """Stands for one stream of the process; a subclass says where texts go."""

    def __init__(self, name: str, original: TextIO) -> None:
        """Take the place of ``original``, ``stdout`` or ``stderr``."""
        self._name, self._original = name, original

    def fileno(self) -> int:
        """Return that of the process's own stream, for children that inherit it."""
        return self._original.fileno()

    def isatty(self) -> bool:
        """Return False: nobody's terminal is at the other end."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True


class RoutedStream(StandIn):
    """Asks with each text whose it is."""

    def __init__(self, name: str, original: TextIO, route: Route) -> None:
        """Take the place of ``original``."""
        super().__init__(name, original)
        self._route = route

    def write(self, text: str) -> int:
        """Write ``text`` to whoever is meant."""
        output = self._route()
        if output is None:
            return self._original.write(text)
        rest, lines = events_apart(text)
        for event in lines:
            self._original.write(f"{event}\n")
            self._original.flush()
        output.write(self._name, rest)
        return len(text)

    def flush(self) -> None:
        """Flush the process's own stream."""
        # At the interpreter's end the streams are closed before those who flush them.
        if not self._original.closed:
            self._original.flush()


def events_apart(text: str) -> tuple[str, list[str]]:
    """Return what is not an event of the job, and the lines that are."""
    # Nearly always: a text that is printed is not taken to pieces for nothing.
    if events.MARK not in text:
        return text, []
    lines = text.splitlines(keepends=True)
    of_job = [line.rstrip("\n") for line in lines if events.parse(line) is not None]
    return "".join(line for line in lines if events.parse(line) is None), of_job


@contextlib.contextmanager
def routed(route: Route) -> Iterator[None]:
    """Put RoutedStreams in the place of both streams of the process."""
    before = sys.stdout, sys.stderr
    sys.stdout = RoutedStream("stdout", before[0], route)
    sys.stderr = RoutedStream("stderr", before[1], route)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before

"""What calls print: the end of each call's output, and the streams that send it there."""

import builtins
import contextlib
import getpass
import io
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

from raysm.contract import events
from raysm.contract.session import DISPLAY
from raysm.errors import InvalidRequest

__all__ = ["KEPT_CHARACTERS", "Output", "Piece", "RoutedStream", "StandIn", "events_apart", "refusing_input", "routed"]

KEPT_CHARACTERS = 4 << 20
"""Of each call, the last ones."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one stream."""

    start: int
    """Position of its first character in all that the call has printed."""
    stream: str
    """``stdout``, ``stderr`` or ``display``."""
    text: str

    @property
    def end(self) -> int:
        """The position behind its last character."""
        return self.start + len(self.text)


class Output:
    """What one call has printed."""

    def __init__(self, wake: Callable[[], None] = lambda: None, most: int = KEPT_CHARACTERS) -> None:
        """Begin empty.

        Args:
            wake: Called, in the writer's thread, when there is more.
            most: Characters that are kept.
        """
        self._wake, self._most = wake, most
        self._lock = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._end = 0

    @property
    def end(self) -> int:
        """Characters printed so far."""
        return self._end

    def write(self, stream: str, text: str) -> None:
        """Add ``text``."""
        if not text:
            return
        with self._lock:
            last = self._pieces[-1] if self._pieces else None
            # print() writes its newline by itself: pieces of one character would be most of the memory.
            if last is not None and last.stream == stream != DISPLAY and len(last.text) < 4096:
                self._pieces[-1] = Piece(last.start, stream, last.text + text)
            else:
                self._pieces.append(Piece(self._end, stream, text))
            self._end += len(text)
            # Whole pieces, only when all that is to be kept lies behind them.
            while self._end - self._pieces[0].end >= self._most:
                self._pieces.popleft()
        # Outside of the lock: whoever is woken may read at once.
        self._wake()

    def show(self, bundle: Mapping[str, Any]) -> None:
        """Add a display."""
        self.write(DISPLAY, json.dumps(bundle))

    def since(self, position: int) -> list[Piece]:
        """Return what was printed from ``position`` on; the first piece begins later where the text is gone."""
        with self._lock:
            later = [piece for piece in self._pieces if piece.end > position]
        if later and later[0].start < position:
            first = later[0]
            later[0] = Piece(position, first.stream, first.text[position - first.start :])
        return later


Route = Callable[[], Output | None]
"""Returns whose output the calling thread's is; None is the job's log."""


class StandIn(io.TextIOBase):
    """Stands for one stream of the process; a subclass says where texts go."""

    encoding = "utf-8"  # tqdm and IPython fall back to ASCII without

    def __init__(self, name: str, original: TextIO) -> None:
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


@contextlib.contextmanager
def refusing_input() -> Iterator[None]:
    """Make ``input()`` and ``getpass()`` raise InvalidRequest: no keyboard is connected to a session."""

    def refuse(prompt: object = "", *_: Any, **__: Any) -> NoReturn:
        asked = f" (it asked {str(prompt).strip()!r})" if str(prompt).strip() else ""
        raise InvalidRequest(
            f"input() does not work in a session, where no keyboard is connected{asked}; send the value as an "
            "argument, or with session.push(name=value)"
        )

    before = builtins.input, getpass.getpass
    builtins.input, getpass.getpass = refuse, refuse
    try:
        yield
    finally:
        builtins.input, getpass.getpass = before

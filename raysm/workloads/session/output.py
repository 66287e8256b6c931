"""The output of calls, and the streams that route printed text to it."""

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
"""How many of the last characters of each call's output are kept."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one stream."""

    start: int
    """Position of its first character in the whole output of the call."""
    stream: str
    """``stdout``, ``stderr`` or ``display``."""
    text: str

    @property
    def end(self) -> int:
        """Position after its last character."""
        return self.start + len(self.text)


class Output:
    """The output of one call, of which the last part is kept."""

    def __init__(self, wake: Callable[[], None] = lambda: None, most: int = KEPT_CHARACTERS) -> None:
        """Begin empty.

        Args:
            wake: Called in the writer's thread when there is new output.
            most: How many characters are kept.
        """
        self._wake, self._most = wake, most
        self._lock = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._end = 0

    @property
    def end(self) -> int:
        """Number of characters printed so far."""
        return self._end

    def write(self, stream: str, text: str) -> None:
        """Add ``text``."""
        if not text:
            return
        with self._lock:
            last = self._pieces[-1] if self._pieces else None
            # Join short pieces, because print() writes its newline separately.
            if last is not None and last.stream == stream != DISPLAY and len(last.text) < 4096:
                self._pieces[-1] = Piece(last.start, stream, last.text + text)
            else:
                self._pieces.append(Piece(self._end, stream, text))
            self._end += len(text)
            # Drop only whole pieces that are not part of the last characters.
            while self._end - self._pieces[0].end >= self._most:
                self._pieces.popleft()
        # Without the lock, because the reader may read at once.
        self._wake()

    def show(self, bundle: Mapping[str, Any]) -> None:
        """Add a display."""
        self.write(DISPLAY, json.dumps(bundle))

    def since(self, position: int) -> list[Piece]:
        """Return the output from ``position`` on, or from the first character that is still kept."""
        with self._lock:
            later = [piece for piece in self._pieces if piece.end > position]
        if later and later[0].start < position:
            first = later[0]
            later[0] = Piece(position, first.stream, first.text[position - first.start :])
        return later


Route = Callable[[], Output | None]
"""Returns the output to which the calling thread prints; None is the job's log."""


class StandIn(io.TextIOBase):
    """Replaces stdout or stderr of the process; a subclass implements ``write``."""

    encoding = "utf-8"  # tqdm and IPython fall back to ASCII without

    def __init__(self, name: str, original: TextIO) -> None:
        self._name, self._original = name, original

    def fileno(self) -> int:
        """Return the descriptor of the process's own stream, which children inherit."""
        return self._original.fileno()

    def isatty(self) -> bool:
        """Return False, because there is no terminal."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True


class RoutedStream(StandIn):
    """Routes each text to the output of the call that prints it."""

    def __init__(self, name: str, original: TextIO, route: Route) -> None:
        super().__init__(name, original)
        self._route = route

    def write(self, text: str) -> int:
        """Write ``text`` to the output that ``route`` returns."""
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
        # At the end of the interpreter the original may be closed first.
        if not self._original.closed:
            self._original.flush()


def events_apart(text: str) -> tuple[str, list[str]]:
    """Split a text into the text without events of the job, and the lines that are events."""
    # The usual case, without parsing each line.
    if events.MARK not in text:
        return text, []
    lines = text.splitlines(keepends=True)
    of_job = [line.rstrip("\n") for line in lines if events.parse(line) is not None]
    return "".join(line for line in lines if events.parse(line) is None), of_job


@contextlib.contextmanager
def routed(route: Route) -> Iterator[None]:
    """Replace stdout and stderr of the process by RoutedStreams while the body runs."""
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

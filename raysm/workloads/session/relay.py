"""What a call's own process does around the user's function: its output travels at once, and a signal interrupts it.

What flows in is the socket of the session's server on the same instance; what flows out are lines of JSON: who this
is, then each piece of output.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, TextIO

from raysm.workloads.session.streams import StandIn, events_apart

__all__ = ["Place", "in_place"]

HELD_CHARACTERS = 8192
"""Without a newline so much is held back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a call runs."""

    call: str
    """Its id."""
    socket: str
    """Of the server."""
    folder: str
    """In which it runs."""


@contextlib.contextmanager
def in_place(place: Place) -> Iterator[None]:
    """Run the body as the call of ``place``: in its folder, its output relayed, interrupted by SIGINT."""
    # Interruptible last: a signal that comes before would hit raysm's own code.
    with contextlib.chdir(place.folder), _connected(place) as send, _relayed(send), _interruptible():
        yield


@contextlib.contextmanager
def _connected(place: Place) -> Iterator["_Line"]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(place.socket)
        line = _Line(connection)
        # First of all: from now on a signal reaches the call.
        line.send({"call": place.call, "pid": os.getpid()})
        try:
            yield line
        finally:
            # A process that the call has forked holds the socket too: without this its end would not be seen.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Line:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # The user's function may print from several threads: half a line in another is no JSON.
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        content = json.dumps(message).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):  # the session is gone, and with it whoever would read this
            self._connection.sendall(content)


@contextlib.contextmanager
def _relayed(line: _Line) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    streams = [_Relay(name, line, original) for name, original in zip(("stdout", "stderr"), before, strict=True)]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            stream.flush()


class _Relay(StandIn):
    """Sends what is printed, by the line: print() writes the newline by itself, and each message costs a call."""

    def __init__(self, name: str, line: _Line, original: TextIO) -> None:
        super().__init__(name, original)
        self._line, self._held = line, ""

    def write(self, text: str) -> int:
        self._held += text
        # A carriage return too: progress bars draw themselves anew by it, and end no line.
        if "\n" in text or "\r" in text or len(self._held) > HELD_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        held, self._held = self._held, ""
        # A report of the user's is an event of the job: the server writes it into the job's log.
        rest, events = events_apart(held)
        for event in events:
            self._line.send({"event": event})
        if rest:
            self._line.send({"stream": self._name, "text": rest})


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt here, and only here."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # For the call alone: a signal that comes late, between two calls, must not end Ray's worker.
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""Relay the output of calls in other processes: they send it line by line to a socket of the server."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from raysm.contract.session import DISPLAY
from raysm.workloads.session.calls import Call
from raysm.workloads.session.output import StandIn, events_apart, refusing_input

__all__ = ["Place", "Printed", "Printing", "SocketLine", "Standing"]

HELD_CHARACTERS = 8192
"""How many characters without a newline are buffered."""

SENDING = threading.Lock()
"""Serializes messages, because user code may print from several threads, even after the end of its call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The output socket and the working folder of calls."""

    socket: str
    """Path of the server's socket for output."""
    folder: str
    """Working folder of the calls."""


class SocketLine:
    """A permanent connection with the session's server on the same instance."""

    def __init__(self, path: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        self._begin = b""

    def send(self, message: Mapping[str, str]) -> None:
        """Send a message."""
        content = self._begin + json.dumps(message).encode() + b"\n"
        # If an interrupt cuts this message short, the next one begins with a newline.
        self._begin = b"\n"
        with contextlib.suppress(OSError):  # the session is gone
            self._connection.sendall(content)
        self._begin = b""


class Standing:
    """Prepares a process for each call: its folder, its output and its signal handler."""

    def __init__(self, folder: str, send: Callable[[Mapping[str, str]], None]) -> None:
        """Create it in the main thread, in which calls run.

        Args:
            folder: Working folder of the calls.
            send: Sends a message to the session's server.
        """
        self._folder, self._send = folder, send

    @contextlib.contextmanager
    def call(self, id: str) -> Iterator["Printed"]:
        """Run the body as the call ``id``: in its folder, with relayed output, and interruptible by SIGINT."""
        printed = Printed(id, self._send)
        # Interruptible last, so that a signal does not interrupt raysm's own code.
        with contextlib.chdir(self._folder), _relayed(printed), refusing_input(), _interruptible():
            yield printed


class Printed:
    """Sends the output of one call.

    Attributes:
        messages: Number of messages sent.
    """

    def __init__(self, call: str, send: Callable[[Mapping[str, str]], None]) -> None:
        """Create it.

        Args:
            call: The call's id.
            send: Sends a message to the session's server.
        """
        self.messages = 0
        self._call, self._send = call, send

    def send(self, **message: str) -> None:
        """Send a piece of output."""
        with SENDING:
            # Counted afterwards, so that the server does not wait for an interrupted message.
            self._send({"call": self._call, **message})
            self.messages += 1

    def show(self, bundle: Mapping[str, Any]) -> None:
        """Send a display, after the text that was printed before it."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.send(display=json.dumps(bundle))


@contextlib.contextmanager
def _relayed(printed: Printed) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    streams = [_Relay(name, printed, original) for name, original in zip(("stdout", "stderr"), before, strict=True)]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            stream.flush()


class _Relay(StandIn):
    """Sends text by the line, because print() writes the newline separately and each message has a cost."""

    def __init__(self, name: str, printed: Printed, original: TextIO) -> None:
        super().__init__(name, original)
        self._printed, self._held = printed, ""

    def write(self, text: str) -> int:
        self._held += text
        # Also at a carriage return, by which progress bars redraw their line.
        if "\n" in text or "\r" in text or len(self._held) > HELD_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text, self._held = self._held, ""
        # raysm.report() prints events of the job, which the server writes into the job's log.
        rest, events = events_apart(text)
        for event in events:
            self._printed.send(event=event)
        if rest:
            self._printed.send(stream=self._name, text=rest)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt while the body runs, and ignore it afterwards."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # For each call, because an earlier one may have replaced the handler.
    signal.signal(signal.SIGINT, interrupt)
    # Ray starts its workers with this signal blocked, so that Ctrl-C at a driver's terminal does not reach them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        # A late signal between two calls must not end the process.
        signal.signal(signal.SIGINT, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN, children do not inherit this handler."""


DRAIN_S = 30.0
"""How long to wait for the last output of a call, which may come from a busy instance."""


@dataclass(slots=True)
class _Received:
    call: Call
    messages: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Printing:
    """Receives the output of calls at a Unix socket."""

    def __init__(self, socket: Path, *, drain_s: float = DRAIN_S) -> None:
        """Create the receiver; ``start`` listens.

        Args:
            socket: Path of the socket, in a private folder.
            drain_s: How long to wait for the last output of a call.
        """
        self.socket = str(socket)
        self._drain_s = drain_s
        self._calls: dict[str, _Received] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen at the socket."""
        # asyncio's default limit of 64 KiB would lose longer messages.
        self._server = await asyncio.start_unix_server(self._listen, self.socket, limit=64 << 20)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    @contextlib.contextmanager
    def of(self, call: Call) -> Iterator[None]:
        """Receive the output of ``call`` while the body runs."""
        self._calls[call.id] = _Received(call)
        try:
            yield
        finally:
            del self._calls[call.id]

    async def drain(self, call: Call, messages: int) -> None:
        """Wait until ``messages`` messages of a call have arrived, or none arrives for the time limit."""
        received = self._calls[call.id]
        with contextlib.suppress(asyncio.TimeoutError):
            while received.messages < messages:
                received.more.clear()
                await asyncio.wait_for(received.more.wait(), self._drain_s)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Processes stay connected until the session ends. If this task is cancelled then, asyncio.streams of
            # Python 3.11 asks for its exception, which logs an error.
            with contextlib.suppress(asyncio.CancelledError):
                async for line in reader:
                    # ValueError: an interrupt has cut the message short.
                    with contextlib.suppress(ValueError):
                        self._receive(json.loads(line))
        finally:
            writer.close()

    def _receive(self, message: Mapping[str, str]) -> None:
        # None: a thread of the user printed after the end of its call.
        received = self._calls.get(message["call"])
        if "event" in message:
            # The output of the server's thread is the job's log.
            sys.stdout.write(message["event"] + "\n")
            sys.stdout.flush()
        elif received is not None:
            if "display" in message:
                received.call.output.write(DISPLAY, message["display"])
            else:
                received.call.output.write(message["stream"], message["text"])
        if received is not None:
            received.messages += 1
            received.more.set()

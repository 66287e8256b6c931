"""Output of calls in other processes: the processes send it to a socket of the server, by the line."""

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
"""Without a newline so much is held back."""

SENDING = threading.Lock()
"""The user's functions may print from several threads, also behind their end: half a line in another is no JSON."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where calls run."""

    socket: str
    """Of the server."""
    folder: str
    """In which they run."""


class SocketLine:
    """A connection with the session's server on the same instance, for as long as the process lives."""

    def __init__(self, path: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        self._begin = b""

    def send(self, message: Mapping[str, str]) -> None:
        """Send a message."""
        content = self._begin + json.dumps(message).encode() + b"\n"
        # An interrupt may strike in the midst of a message: the next one is not to be the end of that line.
        self._begin = b"\n"
        with contextlib.suppress(OSError):  # the session is gone, and with it whoever would read this
            self._connection.sendall(content)
        self._begin = b""


class Standing:
    """A process that stands ready for calls."""

    def __init__(self, folder: str, send: Callable[[Mapping[str, str]], None]) -> None:
        """Prepare; in the main thread, in which calls run.

        Args:
            folder: In which they run.
            send: Sends a message to the session's server.
        """
        self._folder, self._send = folder, send

    @contextlib.contextmanager
    def call(self, id: str) -> Iterator["Printed"]:
        """Run the body as the call ``id``: in the folder, its output relayed, interrupted by SIGINT."""
        printed = Printed(id, self._send)
        # Interruptible last: a signal that comes before would hit raysm's own code.
        with contextlib.chdir(self._folder), _relayed(printed), refusing_input(), _interruptible():
            yield printed


class Printed:
    """What one call prints.

    Attributes:
        messages: How many were sent.
    """

    def __init__(self, call: str, send: Callable[[Mapping[str, str]], None]) -> None:
        """Begin with nothing.

        Args:
            call: Its id.
            send: Sends a message.
        """
        self.messages = 0
        self._call, self._send = call, send

    def send(self, **message: str) -> None:
        """Send a piece."""
        with SENDING:
            # Counted behind: one that an interrupt cuts short is not waited for.
            self._send({"call": self._call, **message})
            self.messages += 1

    def show(self, bundle: Mapping[str, Any]) -> None:
        """Send a display, after what was printed before it."""
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
    """Sends what is printed, by the line: print() writes the newline by itself, and each message costs a call."""

    def __init__(self, name: str, printed: Printed, original: TextIO) -> None:
        super().__init__(name, original)
        self._printed, self._held = printed, ""

    def write(self, text: str) -> int:
        self._held += text
        # A carriage return too: progress bars draw themselves anew by it, and end no line.
        if "\n" in text or "\r" in text or len(self._held) > HELD_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text, self._held = self._held, ""
        # A report of the user's is an event of the job: the server writes it into the job's log.
        rest, events = events_apart(text)
        for event in events:
            self._printed.send(event=event)
        if rest:
            self._printed.send(stream=self._name, text=rest)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt here, and only here."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Each time: the function of an earlier call may have put its own in this one's place.
    signal.signal(signal.SIGINT, interrupt)
    # Ray starts its workers with this signal blocked, so that Ctrl-C at a driver's terminal does not reach them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        # A signal that comes late, between two calls, is nobody's, and must not end the process.
        signal.signal(signal.SIGINT, _pass_over)


def _pass_over(number: int, frame: FrameType | None) -> None:
    """Do nothing. SIG_IGN would do it too, and be inherited by whatever the next call starts."""


DRAIN_S = 30.0
"""How long the last of a call's output may be under way: from another instance, on machines that have other work."""


@dataclass(slots=True)
class _Heard:
    call: Call
    messages: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Printing:
    """The socket, and the calls whose output comes by it."""

    def __init__(self, socket: Path, *, drain_s: float = DRAIN_S) -> None:
        """Prepare.

        Args:
            socket: In a folder that nobody else can enter.
            drain_s: How long the last of a call's output is waited for.
        """
        self.socket = str(socket)
        self._drain_s = drain_s
        self._calls: dict[str, _Heard] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        # Of a message of more than 64 KiB, asyncio's limit, nothing would arrive.
        self._server = await asyncio.start_unix_server(self._listen, self.socket, limit=64 << 20)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    @contextlib.contextmanager
    def of(self, call: Call) -> Iterator[None]:
        """Take what ``call`` prints for as long as the body runs."""
        self._calls[call.id] = _Heard(call)
        try:
            yield
        finally:
            del self._calls[call.id]

    async def drain(self, call: Call, messages: int) -> None:
        """Wait, but not for long, until so many messages of a call have come: they belong before its outcome."""
        heard = self._calls[call.id]
        with contextlib.suppress(asyncio.TimeoutError):
            while heard.messages < messages:
                heard.more.clear()
                await asyncio.wait_for(heard.more.wait(), self._drain_s)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Processes stay connected until the session ends, and of a task that is cancelled then asyncio.streams of
            # Python 3.11 asks for its exception, which is logged as an error.
            with contextlib.suppress(asyncio.CancelledError):
                async for line in reader:
                    # Half a line is what an interrupt leaves that struck in the midst of a message.
                    with contextlib.suppress(ValueError):
                        self._hear(json.loads(line))
        finally:
            writer.close()

    def _hear(self, message: Mapping[str, str]) -> None:
        # A thread of the user's may print when its call is over: nobody waits for that.
        heard = self._calls.get(message["call"])
        if "event" in message:
            # In a thread of the server, whose own output is the job's log.
            sys.stdout.write(message["event"] + "\n")
            sys.stdout.flush()
        elif heard is not None:
            if "display" in message:
                heard.call.output.write(DISPLAY, message["display"])
            else:
                heard.call.output.write(message["stream"], message["text"])
        if heard is not None:
            heard.messages += 1
            heard.more.set()

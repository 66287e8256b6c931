"""The output of calls, and how it comes from the streams of all processes to the server.

Other processes send output line by line to a Unix socket of the server.
"""

import asyncio
import builtins
import codecs
import contextlib
import getpass
import io
import json
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from raysm.core.protocol import events
from raysm.errors import InvalidRequest
from raysm.features.session.protocol import DISPLAY

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

KEPT_CHARACTERS = 4 << 20
"""How many of the last characters of each call's output are kept."""


@dataclass(frozen=True, slots=True)
class Piece:
    start: int
    """Position of its first character in the whole output of the call."""
    stream: str
    """``stdout``, ``stderr`` or ``display``."""
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


LogLines = Callable[[str, str], list[str]]
"""Returns the lines of the job's log for a call's event: the event's line, and the call's arguments
as JSON."""


class Output:
    """The output of one call, of which the last part is kept. Any thread may write."""

    def __init__(
        self,
        wake: Callable[[], None] = lambda: None,
        most: int = KEPT_CHARACTERS,
        log_lines: LogLines = lambda event, arguments: [event],
    ) -> None:
        # wake() is called in the writer's thread.
        self._wake = wake
        self._most = most
        self.log_lines = log_lines
        self._lock = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self.end = 0

    def write(self, stream: str, text: str) -> None:
        if not text:
            return
        with self._lock:
            last = self._pieces[-1] if self._pieces else None
            # Join short pieces, because print() writes its newline separately.
            if last is not None and last.stream == stream != DISPLAY and len(last.text) < 4096:
                self._pieces[-1] = Piece(last.start, stream, last.text + text)
            else:
                self._pieces.append(Piece(self.end, stream, text))
            self.end += len(text)
            # Drop only whole pieces that are not part of the last characters.
            while self.end - self._pieces[0].end >= self._most:
                self._pieces.popleft()
        # Without the lock, because the reader may read at once.
        self._wake()

    def read_from(self, position: int) -> list[Piece]:
        with self._lock:
            later = [piece for piece in self._pieces if piece.end > position]
        if later and later[0].start < position:
            first = later[0]
            later[0] = Piece(position, first.stream, first.text[position - first.start :])
        return later


class _Stream(io.TextIOBase):
    """A stream that programs can use like the process's own ``sys.stdout``."""

    encoding = "utf-8"  # tqdm and IPython fall back to ASCII without
    errors = "replace"
    mode = "w"
    line_buffering = True

    def __init__(self, name: str, original: TextIO) -> None:
        self.name = f"<{name}>"
        self._name = name
        self._original = original
        self.buffer = _Buffer(self)

    def fileno(self) -> int:
        # Children inherit the process's own stream.
        return self._original.fileno()

    def writable(self) -> bool:
        return True

    def reconfigure(self, **_: object) -> None:
        """Do nothing but flush: text is UTF-8 and sent by the line, whatever a program asks for."""
        self.flush()


class _Buffer(io.BufferedIOBase):
    """Decodes bytes for a stream; an incomplete character waits for its other bytes."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(stream.encoding)(stream.errors)

    def write(self, content: "ReadableBuffer", /) -> int:
        given = bytes(content)
        self._stream.write(self._decoder.decode(given))
        return len(given)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True


Route = Callable[[], Output | None]
"""Returns the output to which the calling thread prints; None is the job's log."""


class RoutedStream(_Stream):
    def __init__(self, name: str, original: TextIO, route: Route) -> None:
        super().__init__(name, original)
        self._route = route
        self._owner = os.getpid()

    def write(self, text: str) -> int:
        # A forked process has only a copy of the output, whose lock a thread may have held.
        output = self._route() if os.getpid() == self._owner else None
        if output is None:
            return self._original.write(text)
        rest, lines = split_events(text)
        for event in lines:
            self._original.writelines(f"{each}\n" for each in output.log_lines(event, ""))
            self._original.flush()
        output.write(self._name, rest)
        return len(text)

    def flush(self) -> None:
        # At the end of the interpreter the original may be closed first.
        if not self._original.closed:
            self._original.flush()


def split_events(text: str) -> tuple[str, list[str]]:
    # The usual case, without parsing each line.
    if events.MARK not in text:
        return text, []
    lines = text.splitlines(keepends=True)
    of_job = [line.rstrip("\n") for line in lines if events.parse(line) is not None]
    return "".join(line for line in lines if events.parse(line) is None), of_job


@contextlib.contextmanager
def _replace_streams(out: Any, err: Any) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout = out
    sys.stderr = err
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def route_output(route: Route) -> contextlib.AbstractContextManager[None]:
    return _replace_streams(
        RoutedStream("stdout", sys.stdout, route), RoutedStream("stderr", sys.stderr, route)
    )


@contextlib.contextmanager
def refuse_input() -> Iterator[None]:
    """Make ``input()``, ``getpass()`` and ``breakpoint()`` raise InvalidRequest.

    A session has no keyboard.
    """

    def refuse(prompt: object = "", *_: Any, **__: Any) -> NoReturn:
        asked = f" (it asked {str(prompt).strip()!r})" if str(prompt).strip() else ""
        raise InvalidRequest(
            "input() does not work in a session, nor a debugger: no keyboard is "
            f"connected{asked}; send the value as an argument, or with session.push(name=value)"
        )

    # Ray's own hook for breakpoint() would wait for a debugger.
    before = builtins.input, getpass.getpass, sys.breakpointhook
    builtins.input = refuse
    getpass.getpass = refuse
    sys.breakpointhook = refuse
    try:
        yield
    finally:
        builtins.input, getpass.getpass, sys.breakpointhook = before


# In a process of calls

HELD_CHARACTERS = 8192
SENDING = threading.Lock()
"""Serializes messages, because user code may print from several threads, even after the end of its
call."""


def _renew_lock() -> None:
    global SENDING
    SENDING = threading.Lock()


# Another thread may have held it when the process was forked.
os.register_at_fork(after_in_child=_renew_lock)

Send = Callable[[Mapping[str, str]], None]


class OutputSocket:
    def __init__(self, path: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        self._begin = b""

    def send(self, message: Mapping[str, str]) -> None:
        content = self._begin + json.dumps(message).encode() + b"\n"
        # If an interrupt cuts this message short, the next one begins with a newline.
        self._begin = b"\n"
        with contextlib.suppress(OSError):  # the session is gone
            self._connection.sendall(content)
        self._begin = b""


@contextlib.contextmanager
def enter_call(folder: str, id: str, send: Send) -> Iterator["OutputSender"]:
    """Run the body as the call ``id`` in the main thread.

    It runs in a folder, with relayed output, and SIGINT interrupts it.
    """
    sender = OutputSender(id, send)
    # Interruptible last, so that a signal does not interrupt raysm's own code.
    with contextlib.chdir(folder), _relay_streams(sender), refuse_input(), _allow_interrupts():
        yield sender


class OutputSender:
    def __init__(self, call: str, send: Send) -> None:
        self.messages = 0
        self.arguments: Callable[[], Mapping[str, Any]] = dict
        self._call = call
        self._send = send

    def send(self, **message: str) -> None:
        with SENDING:
            # Counted afterwards, so that the server does not wait for an interrupted message.
            self._send({"call": self._call, **message})
            self.messages += 1

    def report(self, event: str) -> None:
        # With the first event: most calls report nothing, so their arguments need not be described.
        arguments = self.arguments()
        self.arguments = dict
        self.send(event=event, **({"arguments": json.dumps(arguments)} if arguments else {}))

    def show(self, bundle: Mapping[str, Any]) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.send(display=json.dumps(bundle))


@contextlib.contextmanager
def _relay_streams(sender: OutputSender) -> Iterator[None]:
    streams = _Relay("stdout", sender, sys.stdout), _Relay("stderr", sender, sys.stderr)
    try:
        with _replace_streams(*streams):
            yield
    finally:
        for stream in streams:
            stream.flush()


class _Relay(_Stream):
    """Sends text by the line: print() writes the newline separately, and messages have a cost."""

    def __init__(self, name: str, sender: OutputSender, original: TextIO) -> None:
        super().__init__(name, original)
        self._sender = sender
        self._held = ""

    def write(self, text: str) -> int:
        self._held += text
        # Also at a carriage return, by which progress bars redraw their line.
        if "\n" in text or "\r" in text or len(self._held) > HELD_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text = self._held
        self._held = ""
        # raysm.report() prints events of the job, which the server writes into the job's log.
        rest, events = split_events(text)
        for event in events:
            self._sender.report(event)
        if rest:
            self._sender.send(stream=self._name, text=rest)


@contextlib.contextmanager
def _allow_interrupts() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # For each call, because an earlier one may have replaced the handler.
    signal.signal(signal.SIGINT, interrupt)
    # Ray starts its workers with this signal blocked, so that Ctrl-C at a driver's terminal does
    # not reach them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        # A late signal between two calls must not end the process. Children do not inherit this,
        # unlike SIG_IGN.
        signal.signal(signal.SIGINT, lambda number, frame: None)


# In the server

DRAIN_S = 30.0
"""How long to wait for the last output of a call, which may come from a busy instance."""


@dataclass(slots=True)
class _Received:
    output: Output
    messages: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)


class OutputReceiver:
    def __init__(self, socket: Path, *, drain_s: float = DRAIN_S) -> None:
        self.socket = str(socket)
        self._drain_s = drain_s
        self._calls: dict[str, _Received] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        # asyncio's default limit of 64 KiB would lose longer messages.
        self._server = await asyncio.start_unix_server(self._listen, self.socket, limit=64 << 20)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @contextlib.contextmanager
    def collect(self, id: str, output: Output) -> Iterator[None]:
        self._calls[id] = _Received(output)
        try:
            yield
        finally:
            del self._calls[id]

    async def drain(self, id: str, messages: int) -> None:
        """Wait for ``messages`` messages of a call, until none arrives within the time limit."""
        received = self._calls[id]
        with contextlib.suppress(asyncio.TimeoutError):
            while received.messages < messages:
                received.more.clear()
                await asyncio.wait_for(received.more.wait(), self._drain_s)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Processes stay connected until the session ends. If this task is cancelled then,
            # asyncio.streams of Python 3.11 asks for its exception, which logs an error.
            with contextlib.suppress(asyncio.CancelledError):
                async for line in reader:
                    # ValueError: an interrupt has cut the message short.
                    with contextlib.suppress(ValueError):
                        self._receive(json.loads(line))
        finally:
            writer.close()

    def _receive(self, message: Mapping[str, str]) -> None:
        received = self._calls.get(message["call"])
        if "event" in message:
            event = message["event"]
            arguments = message.get("arguments", "")
            lines = [event] if received is None else received.output.log_lines(event, arguments)
            # The output of the server's thread is the job's log.
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()
        # None: a thread of the user printed after the end of its call.
        if received is None:
            return
        if "display" in message:
            received.output.write(DISPLAY, message["display"])
        elif "text" in message:
            received.output.write(message["stream"], message["text"])
        received.messages += 1
        received.more.set()

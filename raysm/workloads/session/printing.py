"""What calls print in processes of their own: each sends it to a socket of the server's, and it is the call's output.

What flows in are lines of JSON, with the call that each belongs to; what flows out are outputs, and events of the job.
All of it lives in the server's event loop.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raysm.workloads.session.calls import Call

__all__ = ["Printing"]

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
            heard.call.output.write(message["stream"], message["text"])
        if heard is not None:
            heard.messages += 1
            heard.more.set()

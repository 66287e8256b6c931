"""A command in an instance, at the agent's end: with a terminal of its own, or with a pipe.

What flows in are keys and sizes of the user's terminal, what flows out is what the command writes. AWS's agent tells
no exit code, nor does this one.
"""

import asyncio
import contextlib
import os
import pty
import sys
import tty
from collections.abc import Sequence

from raysm.contract.ssm.frames import PAYLOAD_BYTES, Flag, Frame, PayloadType, flag
from raysm.local.instances import Visit
from raysm.local.server.ssm.plugin import Ends

__all__ = ["Command"]

REST_S = 0.5
"""How long to read on when the command has ended: what it left in the background may hold its terminal for ever."""


class Command:
    """A command that is run for a session."""

    def __init__(self, ends: Ends, command: Sequence[str], *, has_terminal: bool) -> None:
        """Stand between ``ends``.

        Args:
            ends: Where it runs, and who sees it.
            command: What to run.
            has_terminal: Whether somebody sits before it.
        """
        self._ends = ends
        self._command = command
        self._has_terminal = has_terminal
        self._visit: Visit | None = None
        self._master = -1
        self._keys: asyncio.StreamWriter | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Run it to its end, or to that of the session.

        Raises:
            OSError: No terminal is to be had.
        """
        reader, stdin, stdout = self._open()
        try:
            # By a name, since a keeper opens it: a descriptor of this process is none of its own.
            name = f"/proc/{os.getpid()}/fd/{stdout}" if not os.isatty(stdout) else os.ttyname(stdout)
            source = name if stdin is not None else os.devnull
            self._visit = await asyncio.to_thread(self._ends.instance.enter, self._command, stdin=source, stdout=name)
            sending = asyncio.ensure_future(self._send_all(reader))
            await self._until_its_end(self._visit)
        finally:
            # The last one of this side: when the command's are closed too, there is nothing more to read.
            os.close(stdout)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sending, REST_S)

    def _open(self) -> tuple[int, int | None, int]:
        """Return what to read from, what the command reads, and where it writes to."""
        if self._has_terminal:
            master, slave = pty.openpty()
            self._master = master
            return master, slave, slave
        # A pipe has a name that others can open on Linux alone; elsewhere a terminal that changes nothing stands in.
        if sys.platform.startswith("linux"):
            reader, writer = os.pipe()
            return reader, None, writer
        master, slave = pty.openpty()
        tty.setraw(slave)
        return master, None, slave

    async def _until_its_end(self, visit: Visit) -> None:
        over = asyncio.ensure_future(self._is_over.wait())
        exited = asyncio.wrap_future(visit.exited)
        await asyncio.wait((over, exited), return_when=asyncio.FIRST_COMPLETED)
        # The visit's future is left alone: to cancel it would be to lose the exit code for others.
        over.cancel()

    async def _send_all(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        try:
            # A terminal ends with an error, where a pipe just ends.
            with contextlib.suppress(OSError):
                while data := await reader.read(PAYLOAD_BYTES):
                    await self._ends.send(PayloadType.OUTPUT, data)
        finally:
            self._master = -1
            transport.close()

    async def take(self, frame: Frame) -> None:
        """Take keys, or the size of the user's terminal."""
        if frame.payload_type == PayloadType.OUTPUT:
            await self._type(frame.payload)
        elif frame.payload_type == PayloadType.SIZE:
            self._resize(frame)
        elif frame.payload == flag(Flag.TERMINATE_SESSION):
            self._is_over.set()

    async def _type(self, keys: bytes) -> None:
        if self._master < 0:
            return
        with contextlib.suppress(OSError):
            # A duplicate: the transport that reads closes its own when the command ends.
            if self._keys is None:
                self._keys = await _writer(os.dup(self._master))
            self._keys.write(keys)
            await self._keys.drain()

    def _resize(self, frame: Frame) -> None:
        import termios

        # A size that is none is passed over: a terminal of the wrong width is better than none.
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
            size = frame.document()
            if self._master >= 0:
                termios.tcsetwinsize(self._master, (int(size["rows"]), int(size["cols"])))

    async def close(self) -> None:
        """Kill it; with its terminal, all that it runs hears a hang-up."""
        self._is_over.set()
        if self._keys is not None:
            self._keys.close()
        if self._visit is not None:
            self._visit.leave()


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)

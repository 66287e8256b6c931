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
from typing import Any

from raysm.contract.ssm.frames import Flag, Frame, PayloadType, flag
from raysm.local.instances import Visit
from raysm.local.server.ssm.output import Output
from raysm.local.server.ssm.plugin import Ends

__all__ = ["Command"]

SILENCE_S = 0.5
"""When the command has ended, the end of its output too: what it left in the background may hold its terminal for ever,
and never write. Not a limit for all that is left, as it was once: to pass that on takes as long as the client reads."""


class Command:
    """A command that is run for a session."""

    def __init__(self, ends: Ends, command: Sequence[str], *, has_terminal: bool, silence_s: float = SILENCE_S) -> None:
        """Stand between ``ends``.

        Args:
            ends: Where it runs, and who sees it.
            command: What to run.
            has_terminal: Whether somebody sits before it.
            silence_s: Seconds without a byte that are the end of what it writes, once it has ended itself.
        """
        self._ends = ends
        self._command = command
        self._has_terminal = has_terminal
        self._silence_s = silence_s
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
        output = Output(reader)
        sending = asyncio.ensure_future(self._send_all(output))
        try:
            await self._run_between(stdin, stdout)
            output.end_by_silence(self._silence_s)
            await self._until(sending)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            self._master = -1
            output.close()

    async def _run_between(self, stdin: int | None, stdout: int) -> None:
        """Run the command with what it reads and where it writes to; the latter is closed then."""
        try:
            # By a name, since a keeper opens it: a descriptor of this process is none of its own.
            name = f"/proc/{os.getpid()}/fd/{stdout}" if not os.isatty(stdout) else os.ttyname(stdout)
            source = name if stdin is not None else os.devnull
            self._visit = await asyncio.to_thread(self._ends.instance.enter, self._command, stdin=source, stdout=name)
            await self._until(asyncio.wrap_future(self._visit.exited))
        finally:
            # The last one of this side: when the command's are closed too, there is nothing more to read.
            os.close(stdout)

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

    async def _until(self, end: asyncio.Future[Any]) -> None:
        """Wait for ``end``, or for that of the session."""
        over = asyncio.ensure_future(self._is_over.wait())
        await asyncio.wait((over, end), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()

    async def _send_all(self, output: Output) -> None:
        # Where the session has ended, nobody is left to be told.
        with contextlib.suppress(OSError):
            while data := await output.read():
                await self._ends.send(PayloadType.OUTPUT, data)

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

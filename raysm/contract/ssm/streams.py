"""Connections over a data channel in asyncio: many by a mux, or one that is all of it.

What flows in are bytes of the channel, what flows out are streams; ``carry`` joins one of them with a socket.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from raysm.contract.ssm.mux import Command, Mux

__all__ = ["ByteStream", "Stream", "Streams", "carry"]

BUFFER_BYTES = 4 << 20
"""Held of a stream that nobody reads; then all streams wait, as in smux, whose session holds as much."""
# What a pipe of Linux holds: more is seldom there at once.
READ_BYTES = 1 << 16


class Stream(Protocol):
    """One connection, whatever carries it."""

    async def read(self) -> bytes:
        """Return the next bytes; none at the end."""

    async def write(self, data: bytes) -> None:
        """Send; return when there is room for more.

        Raises:
            OSError: It is closed.
        """

    async def close(self) -> None:
        """End it, in both directions; harmless when repeated."""


class ByteStream:
    """A connection that somebody feeds with what comes for it."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], leave: Callable[[], Awaitable[None]]) -> None:
        """Send by ``send``; ``leave`` tells the other end that this one is closed."""
        self._send = send
        self._leave = leave
        self._chunks: list[bytes] = []
        self._held = 0
        # One event for both directions: whoever waits looks anew what has changed.
        self._changed = asyncio.Event()
        self._is_finished = False
        self._is_closed = False

    async def read(self) -> bytes:
        """Return the next bytes; none at the end."""
        while not self._chunks and not self._is_finished:
            await self._change()
        # All at once: a reader that is slower than the channel catches up by larger pieces.
        data, self._chunks, self._held = b"".join(self._chunks), [], 0
        self._changed.set()
        return data

    async def write(self, data: bytes) -> None:
        """Send; return when there is room for more.

        Raises:
            OSError: It is closed, or the session has ended.
        """
        if self._is_closed:
            raise BrokenPipeError("the stream is closed")
        await self._send(data)

    async def close(self) -> None:
        """End it, in both directions; harmless when repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        self.finish()
        await self._leave()

    async def feed(self, data: bytes) -> None:
        """Take what came; return when there is room for more."""
        while self._held > BUFFER_BYTES and not self._is_finished:
            await self._change()
        if not self._is_finished:
            self._chunks.append(data)
            self._held += len(data)
            self._changed.set()

    def finish(self) -> None:
        """Nothing more comes."""
        self._is_finished = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Streams:
    """All connections of a session that a mux carries, at one of its ends."""

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        is_client: bool,
        accept: Callable[[ByteStream], None] | None = None,
    ) -> None:
        """Begin without any.

        Args:
            send: Sends bytes of the mux, at most one message each.
            is_client: Whether this end opens streams.
            accept: Is given each stream that the other end opens.
        """
        self._send = send
        self._accept = accept
        self._mux = Mux(is_client=is_client)
        # By their numbers, until this end closes them: what comes later for one of them is passed over.
        self._open: dict[int, ByteStream] = {}
        self._is_over = False

    async def open(self) -> ByteStream:
        """Return a new stream.

        Raises:
            OSError: The session has ended.
        """
        if self._is_over:
            raise ConnectionResetError("the session has ended")
        number, data = self._mux.open()
        stream = self._add(number)
        await self._send(data)
        return stream

    def _add(self, number: int) -> ByteStream:
        stream = self._open[number] = ByteStream(partial(self._push, number), partial(self._leave, number))
        return stream

    async def feed(self, data: bytes) -> None:
        """Take bytes of the mux; return when every stream has room for more.

        Raises:
            ValueError: They are no smux.
        """
        for event in self._mux.receive(data):
            # A number that is not here is one that was closed while its last bytes were under way.
            stream = self._open.get(event.stream)
            if event.command is Command.SYN and stream is None and self._accept is not None:
                self._accept(self._add(event.stream))
            elif event.command is Command.PSH and stream is not None:
                await stream.feed(event.data)
            elif event.command is Command.FIN and stream is not None:
                stream.finish()

    async def _push(self, number: int, data: bytes) -> None:
        # Frame by frame: between two of a large write those of other streams have their turn.
        for frame in self._mux.push(number, data):
            await self._send(frame)

    async def _leave(self, number: int) -> None:
        if self._open.pop(number, None) is not None and not self._is_over:
            await self._send(self._mux.finish(number))

    async def keep_alive(self) -> None:
        """Send a sign of life."""
        await self._send(self._mux.nop())

    def end(self) -> None:
        """The session has ended, and every stream with it."""
        self._is_over = True
        for stream in self._open.values():
            stream.finish()


async def carry(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on in both directions until either side ends, and close both.

    The end of either ends both: SSM's agent knows no half-closed connections.
    """
    # Both at once: either side may be silent for hours while the other one talks.
    onward = asyncio.ensure_future(_send(stream, reader))
    back = asyncio.ensure_future(_receive(stream, writer))
    try:
        await asyncio.wait((onward, back), return_when=asyncio.FIRST_COMPLETED)
    finally:
        writer.close()  # first: whoever waits below may be cancelled
        for task in (onward, back):
            task.cancel()
        await asyncio.gather(onward, back, return_exceptions=True)
        await stream.close()


async def _send(stream: Stream, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(READ_BYTES):
        await stream.write(data)


async def _receive(stream: Stream, writer: asyncio.StreamWriter) -> None:
    while data := await stream.read():
        writer.write(data)
        await writer.drain()

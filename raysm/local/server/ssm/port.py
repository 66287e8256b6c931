"""Port forwarding at the agent's end: many connections by a mux, or one at a time.

What flows in are the client's messages, what flows out are connections to a port on the instance's own loopback. Both
do what AWS's agent does, its oddities too: a plain session does not tell the client that the port's end has closed.
"""

import asyncio
import contextlib
import socket

from raysm.contract.ssm.frames import PAYLOAD_BYTES, Flag, Frame, PayloadType, flag
from raysm.contract.ssm.streams import ByteStream, Streams, carry
from raysm.local.instances import Instance
from raysm.local.server.ssm.plugin import Ends

__all__ = ["MuxPort", "PlainPort"]


async def connect(instance: Instance, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port on the loopback of ``instance``.

    Raises:
        OSError: Nobody listens there.
    """
    connecting = asyncio.get_running_loop().run_in_executor(None, instance.connect, port)
    try:
        connection = await asyncio.shield(connecting)
    except asyncio.CancelledError:
        # A thread cannot be cancelled: the connection that it still makes would stay open until it is collected.
        connecting.add_done_callback(_close_connected)
        raise
    try:
        connection.setblocking(False)
        return await asyncio.open_connection(sock=connection)
    except BaseException:
        connection.close()
        raise


def _close_connected(connecting: "asyncio.Future[socket.socket]") -> None:
    if connecting.exception() is None:
        connecting.result().close()


class MuxPort:
    """Any number of connections at a time."""

    def __init__(self, ends: Ends, port: int) -> None:
        """Stand between ``ends``."""
        self._ends = ends
        self._port = port
        self._streams = Streams(self._send, is_client=False, accept=self._accept)
        self._carrying: set[asyncio.Task[None]] = set()
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Wait for the end."""
        await self._is_over.wait()

    async def take(self, frame: Frame) -> None:
        """Pass bytes on to the mux."""
        if frame.payload_type == PayloadType.OUTPUT:
            await self._streams.feed(frame.payload)
        elif frame.payload == flag(Flag.TERMINATE_SESSION):
            self._is_over.set()

    async def close(self) -> None:
        """End every connection."""
        self._is_over.set()
        self._streams.end()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _send(self, data: bytes) -> None:
        await self._ends.send(PayloadType.OUTPUT, data)

    def _accept(self, stream: ByteStream) -> None:
        task = asyncio.ensure_future(self._serve(stream))
        self._carrying.add(task)
        # A session may have thousands, one after the other: those that are over are not kept.
        task.add_done_callback(self._carrying.discard)

    async def _serve(self, stream: ByteStream) -> None:
        # Where the session ends meanwhile, nobody is left to be told.
        with contextlib.suppress(OSError):
            try:
                reader, writer = await connect(self._ends.instance, self._port)
            except OSError:
                await self._ends.send(PayloadType.FLAG, flag(Flag.CONNECT_TO_PORT_ERROR))
                await stream.close()
                return
            await carry(stream, reader, writer)


class PlainPort:
    """One connection after the other, as older agents do it."""

    def __init__(self, ends: Ends, port: int) -> None:
        """Stand between ``ends``."""
        self._ends = ends
        self._port = port
        self._writer: asyncio.StreamWriter | None = None
        # Connections are made from ``run`` and from ``take``: without it both would make the first one.
        self._connecting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Connect, and wait for the end.

        Raises:
            OSError: Nobody listens at the port.
        """
        await self._connect()
        await self._is_over.wait()

    async def take(self, frame: Frame) -> None:
        """Pass bytes on to the port, by a new connection where the one before has ended."""
        if frame.payload_type == PayloadType.OUTPUT:
            try:
                writer = await self._connect()
                writer.write(frame.payload)
                await writer.drain()
            except OSError:
                # The port's end is gone: the session is over, as the agent's is.
                self._is_over.set()
        elif frame.payload == flag(Flag.DISCONNECT_TO_PORT):
            await self._disconnect()
        elif frame.payload == flag(Flag.TERMINATE_SESSION):
            self._is_over.set()

    async def close(self) -> None:
        """End the connection."""
        self._is_over.set()
        await self._disconnect()

    async def _connect(self) -> asyncio.StreamWriter:
        """Return the connection, made anew where there is none."""
        # The client's first bytes may come while the first connection is being made.
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await connect(self._ends.instance, self._port)
                self._reading = asyncio.ensure_future(self._read(reader, self._writer))
            return self._writer

    async def _disconnect(self) -> None:
        # Taken first: what ends meanwhile finds nothing left to close.
        reading, self._reading = self._reading, None
        writer, self._writer = self._writer, None
        if reading is not None and writer is not None:
            writer.close()  # first: whoever waits below may be cancelled
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PAYLOAD_BYTES):
                await self._ends.send(PayloadType.OUTPUT, data)
        # The next bytes open another connection, unless there is a newer one already.
        if self._writer is writer:
            self._writer = None
        writer.close()

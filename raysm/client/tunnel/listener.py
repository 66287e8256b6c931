"""Listens on this machine's loopback: what flows in are connections, and each flows out as one to an instance."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from raysm.contract.accepting import accept_no_more
from raysm.contract.ssm.streams import Stream, carry
from raysm.errors import InvalidRequest, RaysmError

__all__ = ["LOOPBACK", "Connect", "Listener"]

Connect: TypeAlias = Callable[[], Awaitable[Stream]]
"""Opens one more connection to the port."""

# Never 0.0.0.0: behind the port lies the cluster, for whoever reaches it. And not ::1, which some machines lack.
LOOPBACK = "127.0.0.1"


class Listener:
    """A listener on loopback; nobody but this machine reaches it.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, connect: Connect) -> None:
        """Carry every connection by one that ``connect`` opens."""
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self.port = 0

    async def listen(self, port: int) -> None:
        """Begin to listen; 0 is any port that is free.

        Raises:
            InvalidRequest: The port is taken, or may not be had.
        """
        try:
            self._server = await asyncio.start_server(self._accept, LOOPBACK, port)
        except OSError as error:
            raise InvalidRequest(
                f"{LOOPBACK}:{port} cannot be listened on: {error.strerror}; choose another local port, or 0 for any"
            ) from error
        # Asked of the socket: port 0 was given, another one was had.
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and end every connection."""
        if self._server is not None:
            await accept_no_more(self._server.sockets)
            self._server.close()
        for task in self._carrying:
            task.cancel()
        # Waited for: each closes its stream, which says goodbye to the agent.
        await asyncio.gather(*self._carrying, return_exceptions=True)
        # Connections that were told to end do so in the loop's next turn.
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of its own: of one that asyncio made for a connection, its end by ``close`` would be said on stderr.
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Whoever connected sees a connection that ends at once, as where nobody listens behind a proxy.
            with contextlib.suppress(OSError, RaysmError):
                await carry(await self._connect(), reader, writer)
        except asyncio.CancelledError:
            # The listener is closed: what is unsent would keep the connection open beyond the end of the loop.
            writer.transport.abort()
            raise
        finally:
            writer.close()

"""The listening socket of a session: a connection reaches the HTTP server once both ends have proved the token."""

import asyncio
import functools
import socket
from collections.abc import Callable

from raysm.contract.connections import HANDSHAKE_S, prove_server

__all__ = ["Door"]

LOOPBACK = "127.0.0.1"
QUEUE = 1024
MAX_STRANGERS = 256
"""Connections in their handshake at a time; one more ends the oldest, so that no stranger keeps a client out."""
PAUSE_S = 0.1
"""After a failure to accept, as for lack of descriptors."""


class Door:
    """Listens on the loopback and admits clients; belongs to the running event loop."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], token: bytes) -> None:
        """Begin to listen, at a port that the system chooses.

        Args:
            protocol: Makes what serves an admitted connection.
            token: The job's.
        """
        self._protocol, self._token = protocol, token
        self._listener = socket.create_server((LOOPBACK, 0), backlog=QUEUE)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        # In the order in which they came.
        self._strangers: dict[asyncio.Task[bool], None] = {}
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Listen no more, and end the connections that were not admitted yet."""
        tasks = [self._accepting, *self._strangers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._strangers) >= MAX_STRANGERS:
                oldest = next(iter(self._strangers))
                oldest.cancel()
                del self._strangers[oldest]
            task = asyncio.create_task(self._admit(connection))
            self._strangers[task] = None
            task.add_done_callback(functools.partial(self._settle, connection=connection))

    async def _admit(self, connection: socket.socket) -> bool:
        """Return whether a connection is the protocol's now."""
        connection.setblocking(False)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await prove_server(connection, self._token, self.port)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        except OSError:  # also NotProved and TimeoutError
            return False
        return True

    def _settle(self, task: "asyncio.Task[bool]", connection: socket.socket) -> None:
        self._strangers.pop(task, None)
        # Here and not in the task: one that is cancelled before its first step does nothing at all.
        if task.cancelled() or not task.result():
            connection.close()

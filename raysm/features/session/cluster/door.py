"""The listening socket of a session's server, which admits only connections that prove that they know the token."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from raysm.core.protocol.connections import HANDSHAKE_S, prove_server
from raysm.core.protocol.parcels import BULK

LOOPBACK = "127.0.0.1"
QUEUE = 1024
MAX_HANDSHAKES = 256
"""Maximum number of connections in their handshake. One more ends the oldest, so that nothing locks
clients out."""
PAUSE_S = 0.1
"""Pause after a failure to accept a connection, for example because descriptors ran out."""


class Door:
    """Listens at a port of the loopback that the system chooses; belongs to the running event loop."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        token: bytes,
        large: Callable[[socket.socket], Coroutine[Any, Any, None]],
    ) -> None:
        self._protocol, self._token, self._large = protocol, token, large
        self._listener = socket.create_server((LOOPBACK, 0), backlog=QUEUE)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        # An ordered set, the oldest first.
        self._handshakes: dict[asyncio.Task[bool], None] = {}
        # asyncio holds tasks weakly.
        self._exchanges: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        tasks = [self._accepting, *self._handshakes]
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
            if len(self._handshakes) >= MAX_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                oldest.cancel()
                del self._handshakes[oldest]
            task = asyncio.create_task(self._admit(connection))
            self._handshakes[task] = None
            task.add_done_callback(functools.partial(self._settle, connection=connection))

    async def _admit(self, connection: socket.socket) -> bool:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await prove_server(connection, self._token, self.port)
                is_large = await _first_byte(connection) == BULK
            if is_large:
                task = asyncio.create_task(self._large(connection))
                self._exchanges.add(task)
                task.add_done_callback(self._exchanges.discard)
            else:
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        except OSError:  # also NotProved and TimeoutError
            return False
        return True

    def _settle(self, task: "asyncio.Task[bool]", connection: socket.socket) -> None:
        self._handshakes.pop(task, None)
        # Closed here, because a task that is cancelled before its first step does not run at all.
        if task.cancelled() or not task.result():
            connection.close()


async def _first_byte(connection: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BlockingIOError):
        return connection.recv(1, socket.MSG_PEEK)
    is_there = asyncio.Event()
    loop.add_reader(connection, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)

"""aiohttp clients whose every connection is opened, and checked, by a function before a request is sent on it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import aiohttp
from aiohttp.client_proto import ResponseHandler

from raysm.contract.listeners import connect_to_own

__all__ = ["CheckedConnector", "OpenConnection", "open_to_own"]

OpenConnection: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]
"""Returns a connection to a host and a port, or raises OSError."""

CONNECT_S = 20.0


async def open_to_own(host: str, port: int) -> socket.socket:
    """Return a connection; on this machine, only to a process of this user.

    Raises:
        ForeignListener: Another user's process listens there.
        OSError: Nothing answers.
    """
    return await asyncio.to_thread(connect_to_own, host, port, CONNECT_S)


class CheckedConnector(aiohttp.BaseConnector):
    """Opens connections by a function, as many as are asked for."""

    def __init__(self, open_connection: OpenConnection) -> None:
        """Open none yet."""
        # aiohttp's 100 connections would be taken by 100 calls that are waited for, and nothing else get through.
        super().__init__(limit=0)
        self._open_connection = open_connection

    # What aiohttp's own connectors implement; it has no public name.
    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: object, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        async with asyncio.timeout(timeout.sock_connect):
            connection = await self._open_connection(req.url.host or "", req.url.port or 0)
        connection.setblocking(False)
        try:
            _, protocol = await self._loop.create_connection(self._factory, sock=connection)
        except BaseException:
            connection.close()
            raise
        return protocol

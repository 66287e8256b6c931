"""aiohttp clients whose every connection is opened, and checked, by a function before a request is sent on it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler

__all__ = ["OpenConnection", "checked_connector"]

OpenConnection: TypeAlias = Callable[[str, int], Awaitable[socket.socket]]
"""Returns a non-blocking connection to a host and a port, or raises OSError."""


def checked_connector(open_connection: OpenConnection) -> "aiohttp.BaseConnector":
    """Return a connector that opens as many connections as are asked for, each by a function."""
    import aiohttp

    class Connector(aiohttp.BaseConnector):
        # What aiohttp's own connectors implement; it has no public name.
        async def _create_connection(
            self, req: aiohttp.ClientRequest, traces: object, timeout: aiohttp.ClientTimeout
        ) -> "ResponseHandler":
            async with asyncio.timeout(timeout.sock_connect):
                connection = await open_connection(req.url.host or "", req.url.port or 0)
            try:
                _, protocol = await self._loop.create_connection(self._factory, sock=connection)
            except BaseException:
                connection.close()
                raise
            return protocol

    # aiohttp's 100 connections would be taken by 100 calls that are waited for, and nothing else get through.
    return Connector(limit=0)

"""Ends the taking of connections in order, for servers that end before the process does.

What flows in are listening sockets of asyncio; nothing flows out: whoever had connected by then is connected.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

__all__ = ["accept_no_more"]

TURNS = 3
"""Of the loop, from a connection that it takes to the transport that it makes of it."""


class Listening(Protocol):
    """A socket, or what asyncio shows of one."""

    def fileno(self) -> int:
        """Its descriptor."""


async def accept_no_more(listeners: Iterable[Listening]) -> None:
    """Take no more connections, and wait until those that were taken are the server's, so that it can end them.

    A server that is closed at once forgets those between: asyncio (until Python 3.12) leaves them open, and what is
    said of it when they are collected, on somebody's stderr, names nobody.
    """
    loop = asyncio.get_running_loop()
    for listener in listeners:
        loop.remove_reader(listener)
    for _ in range(TURNS):
        await asyncio.sleep(0)

"""Asks this instance's own dashboard: a path flows in, JSON flows out. The standard library alone, for bare images."""

import asyncio
import json
from typing import Any

from raysm.contract.connections import open_to_own

__all__ = ["read_dashboard"]

MOST_BYTES = 8 << 20
"""Of one answer; what is larger is not kept."""
LOOPBACK = "127.0.0.1"


async def read_dashboard(port: int, token: str, key: str) -> Any:
    """Return the answer to a path with its query.

    Args:
        port: Of the dashboard, on loopback.
        token: The job's.
        key: ``nodes?view=summary``.

    Raises:
        OSError: Nothing answers, another user's process listens there, or the answer is too large or not 200.
        ValueError: The answer is no JSON.
    """
    connection = await open_to_own(LOOPBACK, port)
    reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_BYTES)
    try:
        # HTTP/1.0: the answer comes in one piece, and ends with the connection.
        request = f"GET /{key} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        answer = await _read_all(reader)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise OSError(f"the dashboard answers {key} with {status[0].decode() if status else 'nothing'}")
    return json.loads(body)


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    pieces, size = [], 0
    while piece := await reader.read(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise OSError("the dashboard's answer is too large to be kept")
    return b"".join(pieces)

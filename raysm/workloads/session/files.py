"""Files of a session, in and out: streamed through the connection, or between the head and the job's store.

The store is reached by addresses that the client has signed: so the head needs neither credentials nor a client of S3.
What flows in are a path and where the content is, what flows out is a file that is whole or not there.
"""

from pathlib import Path
from typing import Protocol

import aiohttp
from aiohttp import web

from raysm.contract.store import replacing
from raysm.errors import InvalidRequest, RaysmError

__all__ = ["receive", "send", "size_of"]

CHUNK_BYTES = 1 << 20


class Content(Protocol):
    """What can be read by pieces: a request's or an answer's body."""

    async def read(self, n: int = -1) -> bytes:
        """Return at most ``n`` bytes; none at the end."""


async def receive(path: Path, content: Content, address: str | None) -> int:
    """Write a file; return its size.

    Args:
        path: The file.
        content: What it will hold, where there is no address.
        address: Where its content is got instead.

    Raises:
        RaysmError: The address does not give it.
    """
    # Before the first byte: behind a large file the refusal would come after minutes.
    if path.is_dir():
        raise InvalidRequest(f"{path} is a folder of the session; name a file in it")
    if address is None:
        return await _written(path, content)
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        if answer.status != 200:
            raise RaysmError(f"the job's store does not give {path.name}: HTTP {answer.status}")
        return await _written(path, answer.content)


async def _written(path: Path, content: Content) -> int:
    size = 0
    # Beside: of a client that goes away in the middle, the file of before stays as it was.
    with replacing(path) as beside, beside.open("wb") as file:
        while chunk := await content.read(CHUNK_BYTES):
            size += file.write(chunk)
    return size


def size_of(path: Path) -> int:
    """Return the size of a file.

    Raises:
        InvalidRequest: There is no such file.
    """
    if not path.is_file():
        what = "is a folder; name a file in it" if path.is_dir() else "is not there"
        raise InvalidRequest(f"the session's file {path} {what}")
    return path.stat().st_size


async def send(path: Path, request: web.Request) -> web.StreamResponse:
    """Answer with a file, or put it where the request's address ``to`` says.

    Raises:
        InvalidRequest: There is no such file.
        RaysmError: The address does not take it.
    """
    size = size_of(path)
    address = request.query.get("to")
    if address is None:
        # By the system's sendfile: no byte of it passes through Python.
        return web.FileResponse(path)
    with path.open("rb") as file:
        # An object of S3 needs its length in front.
        headers = {"Content-Length": str(size)}
        async with aiohttp.ClientSession() as session, session.put(address, data=file, headers=headers) as answer:
            if answer.status != 200:
                raise RaysmError(f"the job's store does not take {path.name}: HTTP {answer.status}")
    return web.json_response({"bytes": size})

"""Files of a session: streamed through the connection, or moved between the head and the job's store.

The client signs the addresses in the store, so the head needs neither credentials nor a client of S3. A file is written
whole or not at all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from raysm.contract.store import replacing
from raysm.errors import InvalidRequest, RaysmError
from raysm.workloads.session.calls import MAX_WAIT_S

CHUNK_BYTES = 1 << 20

STORE_SILENCE_S = 60.0
"""How long the store may stay silent. aiohttp's default is a limit of five minutes for the whole transfer."""


async def receive(path: Path, content: aiohttp.StreamReader, address: str | None) -> int:
    """Write a file from ``content``, or from a presigned URL in the job's store; return its size."""
    # Checked first, because the transfer of a large file takes minutes.
    if path.is_dir():
        raise InvalidRequest(f"{path} is a folder of the session; name a file in it")
    if address is None:
        return await _written(path, content)
    async with _store(path) as store, store.get(address) as answer:
        if answer.status != 200:
            raise RaysmError(f"the job's store does not give {path.name}: HTTP {answer.status}")
        return await _written(path, answer.content)


async def _written(path: Path, content: aiohttp.StreamReader) -> int:
    size = 0
    # If the client disconnects in the middle, the old file stays unchanged.
    with replacing(path) as beside, beside.open("wb") as file:
        while chunk := await content.read(CHUNK_BYTES):
            size += file.write(chunk)
    return size


def size_of(path: Path) -> int:
    if not path.is_file():
        what = "is a folder; name a file in it" if path.is_dir() else "is not there"
        raise InvalidRequest(f"the session's file {path} {what}")
    return path.stat().st_size


async def send(path: Path, address: str) -> int:
    """Upload a file to a presigned URL; return its size."""
    size = size_of(path)
    with path.open("rb") as file:
        # S3 requires the Content-Length header.
        headers = {"Content-Length": str(size)}
        async with _store(path) as store, store.put(address, data=file, headers=headers) as answer:
            if answer.status != 200:
                raise RaysmError(f"the job's store does not take {path.name}: HTTP {answer.status}")
    return size


@asynccontextmanager
async def _store(path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=STORE_SILENCE_S, sock_read=STORE_SILENCE_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield session
    except aiohttp.ClientError as error:
        raise RaysmError(f"the job's store broke off at {path.name}: {error}") from error


class Transfers:
    """Running transfers between the head and the job's store, identified by their presigned URLs.

    A transfer may take longer than an answer can be held back. A client that asks again waits for the same transfer.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[int]] = {}

    async def wait(self, address: str, begin: Callable[[], Coroutine[Any, Any, int]], wait_s: float) -> int | None:
        """Start a transfer, unless it is running; return the size of the file, or None if it runs after ``wait_s``."""
        task = self._under_way.get(address)
        if task is None:
            task = self._under_way[address] = asyncio.create_task(begin())
        await asyncio.wait([task], timeout=min(wait_s, MAX_WAIT_S))
        if not task.done():
            return None
        # Another waiter may have removed the task, and a third one may have started a new transfer.
        if self._under_way.get(address) is task:
            del self._under_way[address]
        return task.result()

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Files of a session: streamed through the connection, or moved between the head and the job's store.

The client signs the addresses in the store, so the head needs neither credentials nor a client of S3. A file is written
whole or not at all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from raysm.contract.store import replacing
from raysm.errors import InvalidRequest, RaysmError
from raysm.workloads.session.calls import MOST_WAIT_S

__all__ = ["Transfers", "receive", "send", "size_of"]

CHUNK_BYTES = 1 << 20

STORE_SILENCE_S = 60.0
"""For which the store may say nothing; aiohttp's own limit is one of the whole transfer, five minutes."""


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
    async with _store(path) as store, store.get(address) as answer:
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


async def send(path: Path, address: str) -> int:
    """Put a file where the address says; return its size.

    Raises:
        InvalidRequest: There is no such file.
        RaysmError: The address does not take it.
    """
    size = size_of(path)
    with path.open("rb") as file:
        # An object of S3 needs its length in front.
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
    """What is under way between the head and the job's store, by its signed address, which no other transfer has.

    It may take longer than any answer may be held back: who asks again waits on for the same one.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[int]] = {}

    async def wait(self, address: str, begin: Callable[[], Coroutine[Any, Any, int]], wait_s: float) -> int | None:
        """Begin a transfer, unless it is under way, and wait for its end, but not for long.

        Args:
            address: By which it is known.
            begin: Does it, and returns its bytes.
            wait_s: For so long; then it is answered all the same, and the client asks again.

        Returns:
            Its bytes, None while it is under way.
        """
        task = self._under_way.get(address)
        if task is None:
            task = self._under_way[address] = asyncio.create_task(begin())
        await asyncio.wait([task], timeout=min(wait_s, MOST_WAIT_S))
        if not task.done():
            return None
        # Of two who waited one has done so, and a third may have begun it anew since.
        if self._under_way.get(address) is task:
            del self._under_way[address]
        return task.result()

    async def close(self) -> None:
        """Break off what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        # Also of those for whose end nobody asked any more.
        await asyncio.gather(*tasks, return_exceptions=True)

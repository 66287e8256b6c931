"""Files of a session: streamed through the connection, or moved by way of the job's store.

The client signs the addresses in the store, so the head needs neither credentials nor a client of
S3. A file is written whole or not at all.
"""

import asyncio
import json
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from raysm.core.protocol.store import replacing
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.session.cluster.calls import Call, CallEnded
from raysm.features.session.cluster.outcomes import interrupted_outcome
from raysm.features.session.protocol import Outcome

CHUNK_BYTES = 1 << 20
STORE_SILENCE_S = 60.0
"""How long the store may stay silent. aiohttp's default is a limit of five minutes for the whole
transfer."""


async def receive(path: Path, content: aiohttp.StreamReader | None, address: str | None) -> int:
    """Write a file from ``content``, or a presigned URL of the job's store; return its size."""
    # Checked first, because the transfer of a large file takes minutes.
    if path.is_dir():
        raise InvalidRequest(f"{path} is a folder of the session; name a file in it")
    if content is not None:
        return await _written(path, content)
    async with _store(path) as store, store.get(str(address)) as answer:
        if answer.status != 200:
            raise RaysmError(f"the job's store does not give {path.name}: HTTP {answer.status}")
        return await _written(path, answer.content)


async def _written(path: Path, content: aiohttp.StreamReader) -> int:
    size = 0
    # If the client disconnects in the middle, the old file stays unchanged.
    with replacing(path) as temporary, temporary.open("wb") as file:
        while chunk := await content.read(CHUNK_BYTES):
            size += file.write(chunk)
    return size


def measure_file(path: Path) -> int:
    if not path.is_file():
        what = (
            "is a folder; name a file in it, or pack it first: tar czf NAME.tgz NAME"
            if path.is_dir()
            else "is not there"
        )
        raise InvalidRequest(f"the session's file {path} {what}")
    return path.stat().st_size


async def send(path: Path, address: str) -> int:
    size = measure_file(path)
    with path.open("rb") as file:
        # S3 requires the Content-Length header.
        headers = {"Content-Length": str(size)}
        async with _store(path) as store, store.put(address, data=file, headers=headers) as answer:
            if answer.status != 200:
                raise RaysmError(f"the job's store does not take {path.name}: HTTP {answer.status}")
    return size


@asynccontextmanager
async def _store(path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=STORE_SILENCE_S, sock_read=STORE_SILENCE_S
    )
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield session
    except aiohttp.ClientError as error:
        raise RaysmError(f"the job's store broke off at {path.name}: {error}") from error


class Transfers:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, asyncio.Task[int]] = {}

    async def run(self, call: Call) -> tuple[bytes, bool]:
        call.start()
        what = json.loads(bytes(call.content))
        path = self._folder / what["path"]
        work = receive(path, None, what["from"]) if "from" in what else send(path, what["to"])
        task = self._running[call.id] = asyncio.create_task(work)
        try:
            return Outcome(
                pickled=pickle.dumps({"path": str(path), "bytes": await task})
            ).encode(), False
        except asyncio.CancelledError:
            task.cancel()
            raise CallEnded(interrupted_outcome()) from None
        finally:
            del self._running[call.id]

    def interrupt(self, call: Call) -> None:
        if call.id in self._running:
            self._running[call.id].cancel()

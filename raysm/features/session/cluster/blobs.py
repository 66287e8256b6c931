"""Large values in an instance's shared memory, which the user's processes open by path."""

import asyncio
import contextlib
import mmap
import os
import socket
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from raysm.core.protocol.parcels import (
    BULK,
    SMALL_BYTES,
    receive_into,
    receive_line,
    send_line,
    size_of,
)
from raysm.errors import InvalidRequest

TRANSFER_TIMEOUT_S = 60.0
MEMORY_SHARE = 0.2
"""Share of the machine's memory for values; further values become files."""
MAX_UPLOADS = 64
"""How many uploaded values may wait for their calls. The oldest are dropped first: their clients
have probably died."""


class Blob:
    def __init__(self, folder: Path | None) -> None:
        self.size = 0
        self._file = ""
        if folder is None and hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("raysm", os.MFD_CLOEXEC)
            # The path is valid while this process has the blob open; nothing is left after the
            # process.
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        else:
            self._descriptor, self._file = tempfile.mkstemp(dir=folder)
            self.path = self._file

    def write(self, pieces: Sequence[Any]) -> None:
        self.size = write(self._descriptor, pieces)

    def receive(self, connection: socket.socket, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        with mmap.mmap(self._descriptor, size) as content, memoryview(content) as view:
            receive_into(connection, view)
        self.size = size

    def send(self, connection: socket.socket) -> None:
        with open(self.path, "rb") as file:
            connection.sendfile(file)

    def content(self) -> memoryview:
        return map_file(self.path, self.size)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._file:
                os.unlink(self._file)

    def __len__(self) -> int:
        return self.size

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def write(descriptor: int, pieces: Sequence[Any]) -> int:
    os.lseek(descriptor, 0, os.SEEK_SET)
    for piece in pieces:
        view = memoryview(piece)
        while len(view):  # one system call writes at most 2 GiB
            view = view[os.write(descriptor, view) :]
    return size_of(pieces)


def write_file(path: str, pieces: Sequence[Any]) -> int:
    with open(path, "wb", buffering=0) as file:
        return write(file.fileno(), pieces)


def map_file(path: str, size: int) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))


class Blobs:
    def __init__(self, folder: Path, memory_share: float = MEMORY_SHARE) -> None:
        self._folder = folder
        self._made: weakref.WeakSet[Blob] = weakref.WeakSet()
        self._uploads: dict[str, Blob] = {}
        self._lock = threading.Lock()
        self._max_bytes = int(
            memory_share * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        )
        # An executor of its own, so that slow clients do not occupy the event loop's threads.
        self._threads = ThreadPoolExecutor(16, "session-values")

    def create(self) -> Blob:
        with self._lock:
            is_file = sum(blob.size for blob in self._made) >= self._max_bytes
            if is_file:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            blob = Blob(self._folder if is_file else None)
            self._made.add(blob)
        return blob

    def keep(self, pieces: Sequence[Any]) -> "bytes | Blob":
        if size_of(pieces) <= SMALL_BYTES:
            return b"".join(pieces)
        blob = self.create()
        blob.write(pieces)
        return blob

    def take(self, id: str) -> Blob:
        with self._lock:
            blob = self._uploads.pop(id, None)
        if blob is None:
            raise InvalidRequest(
                f"the arguments of the call {id} did not arrive; send the call again"
            )
        return blob

    async def serve(self, connection: socket.socket, outcome: Callable[[str], Blob]) -> None:
        """Send or receive one large value, as an admitted client asks.

        ``outcome`` is called in another thread.
        """
        await asyncio.get_running_loop().run_in_executor(
            self._threads, self._exchange, connection, outcome
        )

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _exchange(self, connection: socket.socket, outcome: Callable[[str], Blob]) -> None:
        connection.settimeout(TRANSFER_TIMEOUT_S)
        with connection, contextlib.suppress(OSError, ValueError):  # the client asks again
            if connection.recv(len(BULK)) != BULK:
                return
            head = receive_line(connection)
            try:
                blob = outcome(head["get"]) if "get" in head else self.create()
            except InvalidRequest as error:
                return send_line(connection, {"error": str(error)})
            if "get" in head:
                send_line(connection, {"bytes": blob.size})
                blob.send(connection)
                return
            send_line(connection, {})
            blob.receive(connection, head["bytes"])
            with self._lock:
                self._uploads[head["put"]] = blob
                while len(self._uploads) > MAX_UPLOADS:
                    del self._uploads[next(iter(self._uploads))]
            send_line(connection, {})

"""Large files on the head's disk: mapped, written at any position, and streamed with a digest.

A stream holds at most ``PIECES`` pieces, however many arrive early. Each piece is brought to the disk and leaves the
page cache at once. A file larger than free memory is written at the disk's speed anyway, and a smaller one then takes
no memory from the tasks. Where fresh memory is slow (virtual machines that return unused memory), recently used pages
are used again: 4 GB were written at 1.4 GB/s this way, and at 0.16 to 0.39 GB/s with one synchronisation at the end.
"""

import contextlib
import errno
import hashlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.store import OPEN
from raysm.errors import NoRoom


@contextlib.contextmanager
def full_disk_is_no_room(path: Path, activity: str = "") -> Iterator[None]:
    """Raise NoRoom if the disk, or the user's quota, becomes full while the block writes.

    ``activity`` says what filled it, as in ``rows 0 to 9 were recorded``; by default that the file was written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoom(f"the disk of {path.parent} became full while {activity or f'{path.name} was written'}") from error


def write_at(descriptor: int, position: int, data: memoryview) -> None:
    """Write all of ``data`` at a byte of an open file, without the file's own position: several threads may."""
    while data:
        # A signal, or a disk that is nearly full, may end a write early.
        count = os.pwrite(descriptor, data, position)
        data, position = data[count:], position + count


def settle(descriptor: int, start: int, stop: int) -> None:
    """Bring these bytes of an open file to the disk, and drop them from the page cache."""
    # macOS has neither.
    if hasattr(os, "posix_fadvise"):
        # First: pages that are not on the disk yet stay in the cache, whatever is advised.
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)


MapPages = Callable[..., mmap.mmap]

# FUSE file systems with direct_io, which bypass the page cache, have no shared mappings, but private ones (numpy issue
# 9894, safetensors issue 545). Whether SageMaker's FastFile is such a file system is not documented.
NOT_MAPPED = (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP)


def map_file(descriptor: int, map_pages: MapPages = mmap.mmap) -> mmap.mmap | None:
    """Map a whole file, which is not empty, read-only; return None if its file system maps no files."""
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        try:
            return map_pages(descriptor, 0, flags=flags, prot=mmap.PROT_READ)
        except OSError as error:
            if error.errno not in NOT_MAPPED:
                raise
    return None


PIECES = 6
"""Pieces in memory: two that are being written, and those that wait for that or for their digest."""

EARLY = 3
"""Pieces in memory that wait for one before them: others are read again from the disk when their turn comes."""

CHUNK_BYTES = 4 << 20


@dataclass(slots=True)
class _Piece:
    start: int
    stop: int
    data: Sequence[bytes | memoryview] | None


class Stream:
    """A file that comes in pieces."""

    def __init__(
        self,
        path: Path,
        head: bytes,
        size: int | None = None,
        write: Callable[[int, int, memoryview], None] = write_at,
    ) -> None:
        """Open ``path``, or make it; what is in it stays.

        Args:
            path: The file.
            head: Its first bytes.
            size: Number of bytes of the whole; None if it is unknown and the file is new.
            write: Writes bytes at a position of an open file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._write_at = path, write
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, OPEN), "r+b", buffering=0)
        if size is not None:
            self._file.truncate(size)
        self._write_at(self._file.fileno(), 0, memoryview(head))
        self._digested = len(head)
        self._digest = hashlib.sha256(head)
        self._written: dict[int, _Piece] = {}
        # A caller that brings pieces faster than the disk takes them waits: memory stays bounded.
        self._room = threading.Semaphore(PIECES)
        self._error: BaseException | None = None
        # While one piece is being synchronised, the next is copied into the page cache.
        self._writers = ThreadPoolExecutor(max_workers=2)
        # One thread: a digest is computed from the beginning, so two threads could not share it.
        self._digester = ThreadPoolExecutor(max_workers=1)

    def put(
        self,
        start: int,
        data: memoryview | Sequence[bytes | memoryview],
    ) -> None:
        """Write ``data``, one buffer or several, from byte ``start`` on; wait while too much is on its way.

        Raises:
            NoRoom: The disk became full, now or with an earlier piece.
        """
        self._room.acquire()
        buffers = [data] if isinstance(data, memoryview) else data
        # Also after an error: both threads have to release the room that was just taken.
        self._writers.submit(self._write, _Piece(start, start + sum(map(len, buffers)), buffers))
        if self._error is not None:
            raise self._error

    def finish(self) -> str:
        """Wait until all is on the disk; return the digest of the whole."""
        self.close()
        if self._error is not None:
            raise self._error
        return self._digest.hexdigest()

    def close(self) -> None:
        """Wait for the pieces that were put, and close the file."""
        # First: they pass their pieces on to the digester.
        self._writers.shutdown()
        self._digester.shutdown()
        if not self._file.closed:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                self._error = self._error or error
            self._file.close()

    def _write(self, piece: _Piece) -> None:
        assert piece.data is not None
        try:
            if self._error is None:
                with full_disk_is_no_room(self.path):
                    position = piece.start
                    for buffer in piece.data:
                        self._write_at(self._file.fileno(), position, memoryview(buffer))
                        position += len(buffer)
                    settle(self._file.fileno(), piece.start, piece.stop)
        except BaseException as error:
            self._error = self._error or error
        self._digester.submit(self._take, piece)

    def _take(self, piece: _Piece) -> None:
        """Digest what is there of what comes next."""
        self._written[piece.start] = piece
        while self._error is None and self._digested in self._written:
            following = self._written.pop(self._digested)
            try:
                if following.data is not None:
                    for buffer in following.data:
                        self._digest.update(buffer)
                elif not self._digest_file(self._digest, following.start, following.stop):
                    raise OSError(errno.EIO, f"{self.path} ends before byte {following.stop}")
            except BaseException as error:
                self._error = self._error or error
            self._digested = following.stop
            self._forget(following)
        # The last of them first: those are the ones that are needed last.
        early = sorted((start for start, one in self._written.items() if one.data is not None), reverse=True)
        for start in early[: len(early) if self._error is not None else max(0, len(early) - EARLY)]:
            self._forget(self._written[start])

    def _forget(self, piece: _Piece) -> None:
        if piece.data is not None:
            piece.data = None
            self._room.release()

    def _digest_file(self, digest: "hashlib._Hash", start: int, stop: int) -> bool:
        """Add what the file has there; return whether it has all of it."""
        while start < stop:
            data = os.pread(self._file.fileno(), min(CHUNK_BYTES, stop - start), start)
            if not data:
                return False
            digest.update(data)
            start += len(data)
        return True

"""Large files on the head's disk: mapped, written at any position, and streamed with a digest.

Each piece of a stream is synchronised to the disk, and dropped from the page cache, at once, so
that the file takes no memory from the tasks. On virtual machines that return unused memory it is
also faster, because recent pages are reused:
1.4 GB/s, where one synchronisation at the end gave 0.16 to 0.39 GB/s.
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

from raysm.core.protocol.store import OPEN
from raysm.errors import NoRoom


@contextlib.contextmanager
def full_disk_is_no_room(path: Path, activity: str = "") -> Iterator[None]:
    """Raise NoRoom if the disk or the quota becomes full while the block writes.

    ``activity`` says what was done.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoom(
            f"the disk of {path.parent} became full while {activity or f'{path.name} was written'}"
        ) from error


def write_at(descriptor: int, position: int, data: memoryview) -> None:
    """Write all of ``data`` at a position of an open file; several threads may do so at once."""
    while data:
        # A signal, or a disk that is nearly full, may end a write early.
        count = os.pwrite(descriptor, data, position)
        data = data[count:]
        position = position + count


def settle(descriptor: int, start: int, stop: int) -> None:
    """Synchronise these bytes of an open file to the disk, and drop them from the page cache."""
    # macOS has neither of the two calls.
    if hasattr(os, "posix_fadvise"):
        # Synchronise first, because pages that are not on the disk yet would stay in the cache.
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)


# FUSE file systems with direct_io, which bypass the page cache, have no shared mappings, but
# private ones (numpy issue 9894, safetensors issue 545). Whether SageMaker's FastFile is such a
# file system is not documented.
NOT_MAPPED = (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP)


def map_file(descriptor: int) -> mmap.mmap | None:
    """Map a whole file, not an empty one, read-only; None if its file system cannot map files."""
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        try:
            return mmap.mmap(descriptor, 0, flags=flags, prot=mmap.PROT_READ)
        except OSError as error:
            if error.errno not in NOT_MAPPED:
                raise
    return None


PIECES = 6
EARLY = 3
"""Maximum number of written pieces that wait in memory for an earlier one before they are digested;
further ones are read again from the disk."""

CHUNK_BYTES = 4 << 20


@dataclass(slots=True)
class _Piece:
    start: int
    stop: int
    data: Sequence[bytes | memoryview] | None


class Stream:
    """A file that is written in pieces, in any order, with a digest of the whole."""

    def __init__(
        self,
        path: Path,
        head: bytes,
        size: int | None = None,
        write: Callable[[int, int, memoryview], None] = write_at,
    ) -> None:
        """Open or create the file, which begins with ``head``; its other content stays."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._write_at = write
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

    def put(self, start: int, data: memoryview | Sequence[bytes | memoryview]) -> None:
        """Write ``data`` at byte ``start``; wait while too many pieces are in memory.

        Raises:
            NoRoom: The disk is full.
        """
        self._room.acquire()
        buffers = [data] if isinstance(data, memoryview) else data
        # Submit it after an error too, because the threads release the room that was just acquired.
        self._writers.submit(self._write, _Piece(start, start + sum(map(len, buffers)), buffers))
        if self._error is not None:
            raise self._error

    def finish(self) -> str:
        self.close()
        if self._error is not None:
            raise self._error
        return self._digest.hexdigest()

    def close(self) -> None:
        # The writers first, because they pass their pieces on to the digester.
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
        self._digester.submit(self._on_written, piece)

    def _on_written(self, piece: _Piece) -> None:
        """Digest the written pieces that come next in the file."""
        self._written[piece.start] = piece
        while self._error is None and self._digested in self._written:
            following = self._written.pop(self._digested)
            try:
                if following.data is not None:
                    for buffer in following.data:
                        self._digest.update(buffer)
                elif not self._digest_file(following.start, following.stop):
                    raise OSError(errno.EIO, f"{self.path} ends before byte {following.stop}")
            except BaseException as error:
                self._error = self._error or error
            self._digested = following.stop
            self._drop_data(following)
        # Drop the pieces first that are needed last.
        early = sorted(
            (start for start, one in self._written.items() if one.data is not None), reverse=True
        )
        kept = EARLY if self._error is None else 0
        for start in early[: max(0, len(early) - kept)]:
            self._drop_data(self._written[start])

    def _drop_data(self, piece: _Piece) -> None:
        if piece.data is not None:
            piece.data = None
            self._room.release()

    def _digest_file(self, start: int, stop: int) -> bool:
        while start < stop:
            data = os.pread(self._file.fileno(), min(CHUNK_BYTES, stop - start), start)
            if not data:
                return False
            self._digest.update(data)
            start += len(data)
        return True

"""Gather values or tiles from all instances into one file on the head, in bounded memory."""

import errno
import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.contract.store import OPEN
from raysm.errors import NoRoom
from raysm.workloads.disk import full_disk_is_no_room, write_at
from raysm.workloads.row_blocks import TileBlock

CHUNK_BYTES = 4 << 20

SPARE_BYTES = 16 << 20


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_room(
    needs: Iterable[tuple[Path, int]], free: Callable[[Path], int] = free_bytes, where: str = "the head"
) -> None:
    """Check that the disks of ``where`` have room for (folder, bytes); folders on one disk share its room."""
    sizes_by_device: dict[int, int] = defaultdict(int)
    folders: dict[int, Path] = {}
    for folder, size in needs:
        # The folder may not exist yet; it will be on the disk of its nearest parent that does.
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        device = existing.stat().st_dev
        # Added up by device, because folders on one disk share its free space.
        sizes_by_device[device] += size
        folders.setdefault(device, existing)
    for device, size in sizes_by_device.items():
        available = free(folders[device])
        if available < size + SPARE_BYTES:
            raise NoRoom(
                f"the disk of {folders[device]} on {where} has {available / 1e9:.2f} GB free, the result needs "
                f"{size / 1e9:.2f} GB; give the instance a larger volume, ask for less (a smaller k), or keep parts of "
                "the result on more instances"
            )


def regroup(chunks: Iterable[tuple[NDArray[Any], ...]], size: int) -> Iterator[tuple[NDArray[Any], ...]]:
    """Regroup a stream of equally long arrays: ``size`` entries each time, fewer at the end."""
    waiting: list[tuple[NDArray[Any], ...]] = []
    length = 0
    for chunk in chunks:
        waiting.append(chunk)
        length += len(chunk[0])
        if length >= size:
            # Join only when a whole piece is there: joining at each chunk would copy the rest again and again.
            joined = tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))
            for start in range(0, length - size + 1, size):
                yield tuple(part[start : start + size] for part in joined)
            rest = length % size
            waiting, length = [tuple(part[len(part) - rest :] for part in joined)], rest
    if length:
        yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))


class ArrayFile:
    """A two-dimensional array on disk, written tile by tile at the right places, never held in memory."""

    def __init__(self, path: Path, header: bytes, rows: int, columns: int, dtype: np.dtype[Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._offset = len(header)
        self._columns = columns
        self._dtype = dtype
        # Unbuffered, because ``write_at`` ignores the file's own position.
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, OPEN), "r+b", buffering=0)
        self._file.truncate(self._offset + rows * columns * dtype.itemsize)
        write_at(self._file.fileno(), 0, memoryview(header))

    def write(self, block: TileBlock, values: NDArray[Any], *, mirrored: bool = False) -> None:
        """Write a tile, or its mirror image in a symmetric array."""
        values = np.ascontiguousarray(values, dtype=self._dtype)
        rows, columns = (block.columns, block.rows) if mirrored else (block.rows, block.columns)
        lines = np.ascontiguousarray(values.T) if mirrored else values
        with full_disk_is_no_room(self.path):
            # Whole rows follow each other in the file, so one write is enough.
            if columns.rows == self._columns:
                write_at(self._file.fileno(), self.position(rows.start, 0), lines.data.cast("B"))
            else:
                for row, line in enumerate(lines, start=rows.start):
                    write_at(self._file.fileno(), self.position(row, columns.start), line.data.cast("B"))

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def position(self, row: int, column: int) -> int:
        """Return the byte position of an entry in the file; the row after the last begins at the file's end."""
        return self._offset + (row * self._columns + column) * self._dtype.itemsize


class PrefixDigest:
    """The digest of a file, computed while the file is still written from its beginning on."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._digest = hashlib.sha256()
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[None] | None = None

    def reach(self, position: int) -> None:
        """Digest up to ``position`` in a thread; the bytes before it must not change any more."""
        # Each step waits for the one before, because a digest needs all bytes in their order.
        self._last = self._pool.submit(self._advance, position, self._last)

    def finish(self) -> str:
        """Return the digest of the file up to the last position."""
        if self._last is not None:
            self._last.result()
        return self._digest.hexdigest()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._file.close()

    def _advance(self, position: int, before: "Future[None] | None") -> None:
        if before is not None:
            before.result()  # raises the error of the step before
        buffer = memoryview(bytearray(CHUNK_BYTES))
        while (left := position - self._file.tell()) > 0:
            count = self._file.readinto(buffer[: min(left, CHUNK_BYTES)])
            if not count:
                raise OSError(errno.EIO, f"{self._file.name} ends before byte {position}")
            self._digest.update(buffer[:count])

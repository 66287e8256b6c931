"""Gather values or tiles from all instances into one file on the head, in bounded memory."""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.core.protocol.store import OPEN
from raysm.errors import NoRoom
from raysm.instance.work.disk import full_disk_is_no_room, write_at
from raysm.instance.work.row_blocks import TileBlock

SPARE_BYTES = 16 << 20


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_room(
    needs: Iterable[tuple[Path, int]],
    free: Callable[[Path], int] = free_bytes,
    where: str = "the head",
) -> None:
    """Check that the disks of ``where`` have room for (folder, bytes).

    Folders on one disk share its room.
    """
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
                f"the disk of {folders[device]} on {where} has {available / 1e9:.2f} GB free, "
                f"the result needs {size / 1e9:.2f} GB; give the instance a larger volume, "
                "ask for less (a smaller k), or keep parts of the result on more instances"
            )


def regroup(
    chunks: Iterable[tuple[NDArray[Any], ...]], size: int
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Regroup a stream of equally long arrays: ``size`` entries each time, fewer at the end."""
    waiting: list[tuple[NDArray[Any], ...]] = []
    length = 0
    for chunk in chunks:
        waiting.append(chunk)
        length += len(chunk[0])
        if length >= size:
            # Join only when a whole piece is there: joining at each chunk would copy the rest again
            # and again.
            joined = tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))
            for start in range(0, length - size + 1, size):
                yield tuple(part[start : start + size] for part in joined)
            rest = length % size
            waiting = [tuple(part[len(part) - rest :] for part in joined)]
            length = rest
    if length:
        yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))


class ArrayFile:
    """A two-dimensional array on disk, written tile by tile in place, never held in memory."""

    def __init__(
        self, path: Path, header: bytes, rows: int, columns: int, dtype: np.dtype[Any]
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._offset = len(header)
        self._columns = columns
        self._dtype = dtype
        # Unbuffered, because ``write_at`` ignores the file's own position.
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, OPEN), "r+b", buffering=0)
        self._file.truncate(self._offset + rows * columns * dtype.itemsize)
        write_at(self._file.fileno(), 0, memoryview(header))

    def write(self, block: TileBlock, values: NDArray[Any]) -> None:
        values = np.ascontiguousarray(values, dtype=self._dtype)
        rows = block.rows
        columns = block.columns
        with full_disk_is_no_room(self.path):
            # Whole rows follow each other in the file, so one write is enough.
            if columns.rows == self._columns:
                write_at(self._file.fileno(), self._position(rows.start, 0), values.data.cast("B"))
            else:
                for row, line in enumerate(values, start=rows.start):
                    write_at(
                        self._file.fileno(), self._position(row, columns.start), line.data.cast("B")
                    )

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def _position(self, row: int, column: int) -> int:
        return self._offset + (row * self._columns + column) * self._dtype.itemsize

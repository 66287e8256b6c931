"""Answers as *keys*: unsigned integers whose order is the answers' order.

The high 32 bits hold the score, descending, and the low 32 bits the neighbor's index.

An owner merges the parts of top-k into a ``TopKAccumulator``, which keeps the best k of every row
on disk. In memory it holds four bytes for each row, the lower bound for the next tiles, and the
keys of one block of rows at a time.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raysm.instance.work.disk import full_disk_is_no_room
from raysm.instance.work.row_blocks import RowBlock

EMPTY_KEY = np.uint64(2**64 - 1)
INDEX_BITS = np.uint64(0xFFFFFFFF)
SIGN = np.uint32(1 << 31)
NO_SCORE = np.uint32(2**32 - 1)


def encode(scores: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return keys that rise as scores fall, then as indices rise.

    Scores have no NaN and no negative zero; indices are below 2**32.
    """
    bits = scores.view(np.uint32)
    # Positive floats rise with their bits, negative ones fall; this reverses both.
    falling = np.where(bits & SIGN, bits, ~bits & ~SIGN)
    return (falling.astype(np.uint64) << np.uint64(32)) | indices.astype(np.uint64)


def decode(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores and indices of keys; ``EMPTY_KEY`` has no score: -inf."""
    falling = (keys >> np.uint64(32)).astype(np.uint32)
    # All ones if the sign bit is clear, which marks reversed positive floats.
    positive = ~(falling.view(np.int32) >> 31).view(np.uint32)
    scores = (falling ^ (positive & ~SIGN)).view(np.float32)
    # No score has these bits, which are a NaN's.
    empty = falling == NO_SCORE
    if empty.any():
        scores[empty] = -np.inf
    return scores, (keys & INDEX_BITS).astype(np.int64)


class TopKAccumulator:
    def __init__(self, folder: Path, rows: int, k: int) -> None:
        self.k = k
        self.lower_bounds = np.full(rows, -np.inf, dtype=np.float32)
        """lower_bounds[rows]: the score of the k-th best, -inf for rows that have fewer."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # The system removes an unnamed file however the process ends.
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)
        self._file.truncate(rows * k * 8)

    def merge(self, block: RowBlock, counts: NDArray[np.uint32], keys: NDArray[np.uint64]) -> None:
        rows = np.flatnonzero(counts)
        if not len(rows):
            return
        # Rows before the first new key, and behind the last, need no disk.
        first = int(rows[0])
        last = int(rows[-1]) + 1
        best = self.read(block.start + first, block.start + last)
        merge_keys(best, counts[first:last], keys)
        self.lower_bounds[block.start + first : block.start + last] = decode(best[:, -1])[0]
        with full_disk_is_no_room(self._folder / "best"):
            # Inverted: a hole of the sparse file then reads as ``EMPTY_KEY``.
            self._write(block.start + first, ~best)

    def read(self, start: int, stop: int) -> NDArray[np.uint64]:
        inverted = np.empty((stop - start, self.k), dtype=np.uint64)
        data = inverted.data.cast("B")
        self._file.seek(start * self.k * 8)
        # An unbuffered call may read less than asked for: on Linux, at most 2 GiB.
        while data:
            data = data[self._file.readinto(data) :]
        return np.invert(inverted, out=inverted)

    def close(self) -> None:
        self._file.close()

    def _write(self, start: int, inverted: NDArray[np.uint64]) -> None:
        data = inverted.data.cast("B")
        self._file.seek(start * self.k * 8)
        while data:
            data = data[self._file.write(data) :]


def merge_keys(
    best: NDArray[np.uint64], counts: NDArray[np.uint32], keys: NDArray[np.uint64]
) -> None:
    """Merge ``counts[n]`` sorted keys of each row, one row after the other, into ``best[n, k]``."""
    rows = np.flatnonzero(counts)
    most = int(counts.max(initial=0))
    new = np.full((len(rows), most), EMPTY_KEY, dtype=np.uint64)
    new[np.arange(most) < counts[rows, None]] = keys
    merged = np.concatenate([best[rows], new], axis=1)
    merged.sort(axis=1)
    best[rows] = merged[:, : best.shape[1]]


def zero_row_keys(rows: NDArray[np.int64], k: int, *, same: bool) -> NDArray[np.uint64]:
    """Return keys[n, k] of zero rows: the lowest indices (if ``same``, not their own), score 0."""
    lowest = np.broadcast_to(np.arange(k), (len(rows), k))
    # Skip the row's own number.
    others = lowest + (lowest >= rows[:, None]) if same else lowest
    return encode(np.zeros(others.shape, dtype=np.float32), others)

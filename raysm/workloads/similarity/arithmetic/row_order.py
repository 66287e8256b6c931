"""Two orders of the same rows: their numbers in the matrix, and where they lie, one instance's after the other's.

Tasks know rows by their *places*: of a matrix that lies whole everywhere these are the numbers, of a sharded one the
rows of the first instance come first, then those of the second (shard-major). So what an instance has is one range, and
within it the numbers rise. Results know rows by their numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock

__all__ = ["RowOrder", "Run", "consecutive", "rectangles"]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are consecutive in both orders."""

    start: int
    """The first one's number in the matrix."""
    offset: int
    """Its place: how many rows of whatever they are part of (all, an instance's, a chunk's) come before."""
    rows: int
    """How many."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """All rows of one matrix."""

    runs: tuple[Run, ...]
    """By their numbers, rising; together they are every row."""

    @classmethod
    def identity(cls, rows: int) -> "RowOrder":
        """Return the order of rows that lie as they are numbered."""
        return cls((Run(0, 0, rows),))

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "RowOrder":
        """Return the order that these runs, in any order, make."""
        return cls(tuple(sorted(runs, key=lambda run: run.start)))

    def between(self, start: int, stop: int) -> Iterator[Run]:
        """Yield the parts of the runs that hold the rows numbered start to stop."""
        for run in self.runs:
            low, high = max(start, run.start), min(stop, run.start + run.rows)
            if low < high:
                yield Run(low, run.offset + low - run.start, high - low)


def consecutive(numbers: NDArray[np.int64]) -> Iterator[Run]:
    """Yield rising numbers of rows in runs of consecutive ones; offsets count from the first of all."""
    if not len(numbers):
        return
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers) != 1) + 1, [len(numbers)]]).tolist()
    for first, stop in zip(edges, edges[1:], strict=False):
        yield Run(int(numbers[first]), first, stop - first)


def rectangles(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Iterator[tuple[TileBlock, slice, slice]]:
    """Yield the rectangles of a matrix that rising numbers of rows and columns are, and where in their tile each is."""
    beside = list(consecutive(columns))
    for above in consecutive(rows):
        for right in beside:
            block = TileBlock(
                RowBlock(above.start, above.start + above.rows), RowBlock(right.start, right.start + right.rows)
            )
            yield (
                block,
                slice(above.offset, above.offset + above.rows),
                slice(right.offset, right.offset + right.rows),
            )

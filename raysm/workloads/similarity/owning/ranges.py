"""Which rows each owner has: ranges of their numbers in the matrix, wherever the rows themselves lie. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock

__all__ = ["Ranges"]


@dataclass(frozen=True, slots=True)
class Ranges:
    """All rows in consecutive ranges."""

    edges: tuple[int, ...]
    """The first row of each range, and behind them the number of all rows; rising."""

    @classmethod
    def even(cls, rows: int, count: int) -> "Ranges":
        """Cut so many rows into so many ranges of about one size, into fewer where there are fewer rows."""
        count = max(1, min(count, rows))
        return cls(tuple(rows * at // count for at in range(count + 1)))

    @classmethod
    def falling(cls, rows: int, count: int) -> "Ranges":
        """Cut rows of which each has a pair with every later one into ranges of about as many pairs."""
        count = max(1, min(count, rows))
        # Of N rows the first x have N**2 - (N - x)**2 halves of a pair.
        edges = [rows - round(rows * (1 - at / count) ** 0.5) for at in range(count)]
        # Rounded, two edges may fall on one row; a range without rows would be a file without any.
        for at in range(1, count):
            edges[at] = min(max(edges[at], edges[at - 1] + 1), rows - count + at)
        return cls((*edges, rows))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[RowBlock]:
        """Yield their rows."""
        return map(RowBlock, self.edges, self.edges[1:])

    def of(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
        """Yield (range, slice) of rising numbers of rows: which of them belong to which range, where any do."""
        if not len(numbers):
            return
        # By the two ends first: of hundreds of ranges a block of rows meets one or two.
        first, last = np.searchsorted(self.edges, numbers[[0, -1]], side="right") - 1
        cuts = np.searchsorted(numbers, self.edges[first : last + 2]).tolist()
        for at, (start, stop) in enumerate(zip(cuts, cuts[1:], strict=False), start=int(first)):
            # Rows of a share may skip a range: no call for nothing.
            if start < stop:
                yield at, slice(start, stop)

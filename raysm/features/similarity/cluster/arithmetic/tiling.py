"""Cut all pairs of rows into tiles of one size, each pair in exactly one of them; numbers and places of rows.

The similarity is symmetric, so with ``n`` blocks of rows only the tiles (I, J) with I <= J are
computed: each gives results for the rows of both blocks. A tile on the diagonal has half as many
pairs as the others, so the whole work is that of n * n / 2 full tiles. Slots take tiles from one
list as they become free. The diagonal comes first: with little work it gives every row a first
bound, and the later tiles, all of one size, let the slots end at about the same time.

The number of blocks is a compromise. A tile costs as much as its pairs, plus a fixed cost of its
rows (reading, quantising, sending keys), so few large tiles are better; but all slots must be busy
until the end. ``blocks_for`` tries the numbers of blocks that give each slot ``TILES_A_SLOT`` tiles
or somewhat more, and returns the one with the least idle time.

**Numbers and places.** Results refer to rows by their *numbers* in the matrix, tasks by their
*places*. If every instance has all rows, places are numbers. If the matrix is sharded, the rows of
the first instance have the first places, then come those of the second. So the places of an
instance's rows are one range, within which the numbers rise.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.instance.work.row_blocks import RowBlock, TileBlock, row_blocks


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows that are consecutive in both orders."""

    start: int
    """The number of the first row in the matrix."""
    offset: int
    """The place of the first row, counted within what the run is part of: all rows, an instance's
    or a chunk's."""
    rows: int


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The numbers and places of all rows of one matrix."""

    runs: tuple[RowRun, ...]
    """All rows, in runs with rising numbers."""

    @classmethod
    def identity(cls, rows: int) -> "RowOrder":
        return cls((RowRun(0, 0, rows),))

    @classmethod
    def of(cls, runs: Sequence[RowRun]) -> "RowOrder":
        return cls(tuple(sorted(runs, key=lambda run: run.start)))

    def between(self, start: int, stop: int) -> Iterator[RowRun]:
        """Yield the parts of the runs that hold the rows numbered start to stop."""
        for run in self.runs:
            low, high = max(start, run.start), min(stop, run.start + run.rows)
            if low < high:
                yield RowRun(low, run.offset + low - run.start, high - low)


def consecutive(numbers: NDArray[np.int64]) -> Iterator[RowRun]:
    """Yield runs of consecutive numbers among rising ``numbers``; offsets are indices of ``numbers``."""
    if not len(numbers):
        return
    edges = np.concatenate(
        [[0], np.flatnonzero(np.diff(numbers) != 1) + 1, [len(numbers)]]
    ).tolist()
    for first, stop in zip(edges, edges[1:], strict=False):
        yield RowRun(int(numbers[first]), first, stop - first)


def rectangles(
    rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> Iterator[tuple[TileBlock, slice, slice]]:
    """Yield (block, slice of ``rows``, slice of ``columns``) for each rectangle of consecutive rows and columns."""
    beside = list(consecutive(columns))
    for above in consecutive(rows):
        for right in beside:
            block = TileBlock(
                RowBlock(above.start, above.start + above.rows),
                RowBlock(right.start, right.start + right.rows),
            )
            yield (
                block,
                slice(above.offset, above.offset + above.rows),
                slice(right.offset, right.offset + right.rows),
            )


TILES_A_SLOT = 8
"""Least number of full tiles for each slot, unless tiles would become too small."""


def rounds_in_halves(blocks: int, slots: int) -> int:
    """Return the time of ``slots`` equally fast slots for the triangle of ``blocks`` blocks, in units of half a tile.

    The first free slot takes the next tile: first ``blocks`` half tiles on the diagonal, then the
    full tiles.
    """
    each, ahead = divmod(blocks, slots)
    rounds, left = divmod(blocks * (blocks - 1) // 2, slots)
    if left == 0:
        last = 1 if ahead else 0
    else:
        # Slots that took one half tile fewer are free first.
        last = 2 if left <= slots - ahead else 3
    return each + 2 * rounds + last


def blocks_for(slots: int, rows: int, least_rows: int, max_tile_rows: int) -> int:
    """Return the number of blocks into which to cut ``rows`` rows, for the triangle on ``slots`` slots.

    If possible, blocks have at least ``least_rows`` rows, and each slot has ``TILES_A_SLOT`` full
    tiles.
    """
    fewest = math.ceil(rows / max_tile_rows)
    enough = math.ceil(math.sqrt(2 * slots * TILES_A_SLOT))
    # If the limits conflict, ``max_tile_rows`` wins over ``least_rows``.
    most = max(fewest, rows // least_rows, 1)
    start = min(max(fewest, enough), most)
    choices = range(start, min(most, start + start // 2) + 1)
    # The work is n * n half tiles; time beyond a slot's share of it is idle. Among equals, take the
    # fewest blocks.
    return min(
        choices, key=lambda blocks: (rounds_in_halves(blocks, slots) * slots / blocks**2, blocks)
    )


def triangle(rows: int, block_rows: int) -> Iterator[TileBlock]:
    """Yield the tiles of the pairs of rows, each unordered pair in one: the diagonal, then line by line."""
    yield from cut(TileBlock(RowBlock(0, rows), RowBlock(0, rows)), block_rows)


def cut(tile: TileBlock, block_rows: int) -> Iterator[TileBlock]:
    """Cut a tile of the triangle into tiles of at most ``block_rows`` rows and columns."""
    above, beside = row_cuts(tile.rows, block_rows), row_cuts(tile.columns, block_rows)
    if tile.rows != tile.columns:
        yield from (TileBlock(rows, columns) for rows in above for columns in beside)
        return
    yield from map(TileBlock, above, above)
    for at, rows in enumerate(above):
        yield from (TileBlock(rows, columns) for columns in above[at + 1 :])


def shifted(tile: TileBlock, rows: int, columns: int) -> TileBlock:
    return TileBlock(
        RowBlock(tile.rows.start + rows, tile.rows.stop + rows),
        RowBlock(tile.columns.start + columns, tile.columns.stop + columns),
    )


def row_cuts(block: RowBlock, rows: int) -> list[RowBlock]:
    return [
        RowBlock(block.start + one.start, block.start + one.stop)
        for one in row_blocks(block.rows, rows)
    ]


def rectangle(rows: int, columns: int, block_rows: int, block_columns: int) -> Iterator[TileBlock]:
    """Yield the tiles of all rows with all columns of another matrix, so that every row gets a first bound early."""
    above = row_blocks(rows, block_rows)
    for beside in row_blocks(columns, block_columns):
        for rows_above in above:
            yield TileBlock(rows_above, beside)

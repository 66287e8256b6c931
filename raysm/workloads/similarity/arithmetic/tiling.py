"""Cut all pairs of rows into tiles of one size, each pair in exactly one of them; numbers and places of rows.

The similarity is symmetric, so of ``n`` blocks of rows only the tiles (I, J) with I <= J are dealt: each serves the
rows of both. A tile on the diagonal holds half the pairs of the others, so with tiles as the unit of work a deal has
n * n / 2 of them. Slots take tiles from one list as they become free. The diagonal comes first: for little work it
gives every row a first bound, and the tiles behind it, all of one size, leave the slots even at the end.

The number of blocks is a compromise: a tile costs as much as its pairs, plus what its rows cost once (reading,
quantising, keys that travel), so few large ones are better; but all slots have to be busy to the end. ``blocks_for``
takes, from those that give each slot ``TILES_A_SLOT``, or as many as are asked for, or somewhat more, the number that
leaves the least idle time.

**Numbers and places.** Tasks know rows by their *places*: of a matrix that lies whole everywhere these are the numbers
of the rows, of a sharded one the rows of the first instance come first, then those of the second. So the rows of an
instance are one range, and within it the numbers rise. Results know rows by their numbers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock, row_blocks


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows that are consecutive in both orders."""

    start: int
    """The first one's number in the matrix."""
    offset: int
    """Its place: how many rows of whatever they are part of (all, an instance's, a chunk's) come before."""
    rows: int


@dataclass(frozen=True, slots=True)
class RowOrder:
    """All rows of one matrix."""

    runs: tuple[RowRun, ...]
    """All rows, by their numbers, rising."""

    @classmethod
    def identity(cls, rows: int) -> "RowOrder":
        """Return the order of rows that lie as they are numbered."""
        return cls((RowRun(0, 0, rows),))

    @classmethod
    def of(cls, runs: Sequence[RowRun]) -> "RowOrder":
        """Return the order that these runs, in any order, make."""
        return cls(tuple(sorted(runs, key=lambda run: run.start)))

    def between(self, start: int, stop: int) -> Iterator[RowRun]:
        """Yield the parts of the runs that hold the rows numbered start to stop."""
        for run in self.runs:
            low, high = max(start, run.start), min(stop, run.start + run.rows)
            if low < high:
                yield RowRun(low, run.offset + low - run.start, high - low)


def consecutive(numbers: NDArray[np.int64]) -> Iterator[RowRun]:
    """Yield rising numbers of rows in runs of consecutive ones; offsets count from the first of all."""
    if not len(numbers):
        return
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers) != 1) + 1, [len(numbers)]]).tolist()
    for first, stop in zip(edges, edges[1:], strict=False):
        yield RowRun(int(numbers[first]), first, stop - first)


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


TILES_A_SLOT = 8
"""Fewer whole tiles than this for each slot are not dealt, unless they would become too small."""


def rounds_in_halves(blocks: int, slots: int) -> int:
    """Return how long ``slots`` equally fast slots need for the triangle of ``blocks`` blocks, in halves of a tile.

    Tiles are taken in their order, each by the slot that is free first: ``blocks`` halves, then the whole ones.
    """
    each, ahead = divmod(blocks, slots)
    rounds, left = divmod(blocks * (blocks - 1) // 2, slots)
    if left == 0:
        last = 1 if ahead else 0
    else:
        # Those that took one half fewer are free first.
        last = 2 if left <= slots - ahead else 3
    return each + 2 * rounds + last


def blocks_for(slots: int, rows: int, least_rows: int, max_tile_rows: int, tiles_a_slot: int = TILES_A_SLOT) -> int:
    """Return into how many blocks to cut ``rows`` rows, for the triangle on ``slots`` slots.

    Args:
        slots: Tasks that run at once.
        rows: N.
        least_rows: Smaller blocks are not wanted: what a task costs by itself would show.
        max_tile_rows: Larger blocks are not possible: a task would hold too much.
        tiles_a_slot: Fewer tiles than so many for each slot are not wanted.
    """
    fewest = math.ceil(rows / max_tile_rows)
    enough = math.ceil(math.sqrt(2 * slots * tiles_a_slot))
    # Where both cannot be had, what a task can hold comes before what a task should cost.
    most = max(fewest, rows // least_rows, 1)
    start = min(max(fewest, enough), most)
    choices = range(start, min(most, start + start // 2) + 1)
    # n * n halves of a tile is the work: what exceeds its share is idle time. Of equals, the fewest.
    return min(choices, key=lambda blocks: (rounds_in_halves(blocks, slots) * slots / blocks**2, blocks))


def triangle(rows: int, block_rows: int) -> Iterator[TileBlock]:
    """Yield the tiles of the pairs of rows, each unordered pair in one: the diagonal, then line by line.

    Line by line, a process that takes one tile after the other finds the rows of its last one at hand.
    """
    yield from cut(TileBlock(RowBlock(0, rows), RowBlock(0, rows)), block_rows)


def cut(tile: TileBlock, block_rows: int) -> Iterator[TileBlock]:
    """Yield the tiles of at most ``block_rows`` rows and columns of a larger one of the triangle."""
    above, beside = row_cuts(tile.rows, block_rows), row_cuts(tile.columns, block_rows)
    if tile.rows != tile.columns:
        yield from (TileBlock(rows, columns) for rows in above for columns in beside)
        return
    yield from map(TileBlock, above, above)
    for at, rows in enumerate(above):
        yield from (TileBlock(rows, columns) for columns in above[at + 1 :])


def shifted(tile: TileBlock, rows: int, columns: int) -> TileBlock:
    """Return the tile that lies so many rows and columns further on."""
    return TileBlock(
        RowBlock(tile.rows.start + rows, tile.rows.stop + rows),
        RowBlock(tile.columns.start + columns, tile.columns.stop + columns),
    )


def row_cuts(block: RowBlock, rows: int) -> list[RowBlock]:
    """Cut a block of rows into blocks of at most ``rows``."""
    return [RowBlock(block.start + one.start, block.start + one.stop) for one in row_blocks(block.rows, rows)]


def rectangle(rows: int, columns: int, block_rows: int, block_columns: int) -> Iterator[TileBlock]:
    """Yield the tiles of all rows with all columns of another matrix, column by column of tiles.

    Every row has met the first columns, and so has a first bound, before any is compared with the next.
    """
    above = row_blocks(rows, block_rows)
    for beside in row_blocks(columns, block_columns):
        for rows_above in above:
            yield TileBlock(rows_above, beside)

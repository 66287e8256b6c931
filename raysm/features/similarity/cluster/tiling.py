"""Split all pairs of rows into tiles, each pair in exactly one; sizes of tiles; orders of rows.

The similarity is symmetric, so with ``n`` blocks of rows only the tiles (I, J) with I <= J are
computed: each gives results for the rows of both blocks. A tile on the diagonal has half as many
pairs as the others, so the work is that of n * n / 2 full tiles. Slots take tiles from one list as
they become free. The diagonal comes first: with little work it gives every row a first bound, and
the later tiles, all of one size, let the slots end at about the same time.

**Numbers and places.** Results refer to rows by their *numbers* in the matrix, tasks by their
*places*. If every instance has all rows, places are numbers. If the matrix is sharded, the rows of
the first instance have the first places, then come those of the second. So the places of an
instance's rows are one range, within which the numbers rise.

**The number of blocks** is a compromise. A tile costs as much as its pairs, plus a fixed cost of
its rows (reading, quantising, sending keys), so few large tiles are better; but all slots must be
busy until the end. ``choose_block_count`` tries the numbers of blocks that give each slot
``TILES_A_SLOT`` tiles or somewhat more, and returns the one with the least idle time. A small
matrix has fewer and larger tiles, at least one for each slot.

**Memory** bounds a tile: an operand takes at most ``OPERAND_BYTES``, and a task returns at most
``PART_BYTES``. A restarted job keeps the sizes of its first run, because a recorded block is of use
only to a run that splits the rows alike. A task of n rows and m columns of a tile, of D elements
each, takes, besides the interpreter and its libraries:

    the mapped rows that it reads            (n + m) D itemsize, which the system may reclaim
  + the operands of this tile,
    or of the latest ones                    max(both, KEPT_BYTES); one takes, for n rows, at most
                                             n D 8 + n D itemsize (if the rows cannot be mapped)
  + the best of its rows and columns,
    and what it returns                      (n + m) (3 * 8 k + 8)
  + NumPy's memory for products,
    if no engine is compiled                 about a dozen arrays of 8 MiB
    or, if it multiplies float32
    of tight clusters                        (n + m) D 8, at most about as much
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.core.protocol.store import put
from raysm.features.similarity.cluster.engines.sparse import ALL_LISTED, SEGMENT_ROWS
from raysm.features.similarity.cluster.reading.matrix import MatrixInfo
from raysm.instance.work.record import BlockRecord
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
            low = max(start, run.start)
            high = min(stop, run.start + run.rows)
            if low < high:
                yield RowRun(low, run.offset + low - run.start, high - low)


def find_runs(numbers: NDArray[np.int64]) -> Iterator[RowRun]:
    """Yield runs of consecutive numbers among rising ``numbers``.

    Offsets are indices of ``numbers``.
    """
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
    """Yield (block, slice of rows, slice of columns) for each consecutive rectangle."""
    beside = list(find_runs(columns))
    for above in find_runs(rows):
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
    """Return the time of ``slots`` slots for a triangle of ``blocks`` blocks, in half tiles.

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


def choose_block_count(slots: int, rows: int, least_rows: int, max_tile_rows: int) -> int:
    """Return the number of blocks into which to split ``rows`` rows, for ``slots`` slots.

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
    """Yield the tiles of all unordered pairs of rows: the diagonal, then line by line."""
    yield from split_tile(TileBlock(RowBlock(0, rows), RowBlock(0, rows)), block_rows)


def split_tile(tile: TileBlock, block_rows: int) -> Iterator[TileBlock]:
    """Cut a tile of the triangle into tiles of at most ``block_rows`` rows and columns."""
    above = split_rows(tile.rows, block_rows)
    beside = split_rows(tile.columns, block_rows)
    if tile.rows != tile.columns:
        yield from (TileBlock(rows, columns) for rows in above for columns in beside)
        return
    yield from map(TileBlock, above, above)
    for at, rows in enumerate(above):
        yield from (TileBlock(rows, columns) for columns in above[at + 1 :])


def shift_tile(tile: TileBlock, rows: int, columns: int) -> TileBlock:
    return TileBlock(
        RowBlock(tile.rows.start + rows, tile.rows.stop + rows),
        RowBlock(tile.columns.start + columns, tile.columns.stop + columns),
    )


def split_rows(block: RowBlock, rows: int) -> list[RowBlock]:
    return [
        RowBlock(block.start + one.start, block.start + one.stop)
        for one in row_blocks(block.rows, rows)
    ]


def rectangle(rows: int, columns: int, block_rows: int, block_columns: int) -> Iterator[TileBlock]:
    """Yield the tiles of all rows with all rows of another matrix, early ones for every row."""
    above = row_blocks(rows, block_rows)
    for beside in row_blocks(columns, block_columns):
        for rows_above in above:
            yield TileBlock(rows_above, beside)


OPERAND_BYTES = 64 << 20
"""Largest operand of a tile, with the copy of its rows that a matrix that cannot be mapped
needs."""

GPU_OPERAND_BYTES = 1 << 30
"""Largest operand that a GPU compares: its rows are mapped on the host and sent to the GPU in
panels."""

PART_BYTES = 32 << 20
TILE_TASKS = 1 << 10
"""Up to this many tiles, each is a task. If there are more, a task of top-k does several, so that
the head merges fewer parts."""

SIZES = "block-rows"
"""File in the record's folder with the sizes that the first run chose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    max_rows: Callable[[MatrixInfo], int]
    min_rows: int
    """Fewest rows of a block: for smaller ones the fixed cost of a task would matter."""
    tile_products: float = 0.0
    """Minimum products of two elements in a tile, unless some slot would then have no tile."""
    open_ended_rows: int | None = None
    """Most rows of a tile whose result may have any size; None: ``max_rows`` is the only limit."""
    joins: bool = False
    """True if a task may do several tiles, provided that ``PartLimits.joins`` allows it."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``map_blocks`` for each task."""


DENSE = Footprint(
    # The engines of the CPU keep up to 8 bytes of each element beside the rows.
    max_rows=lambda matrix: max(1, OPERAND_BYTES // (matrix.columns * (8 + matrix.dtype.itemsize))),
    min_rows=512,
    # 10 to 60 ms of a core. Sending a tile to a task and merging its part takes some 5 ms of the
    # head, and a larger tile has fewer candidates for each of its rows.
    tile_products=2.5e9,
    joins=True,
)
"""A core that compares dense rows."""


def _sparse_rows(matrix: MatrixInfo) -> int:
    """Return how many sparse rows an operand may have, with the lists of its columns."""
    each = matrix.elements / matrix.rows
    lists = 4 * min(matrix.columns, ALL_LISTED)
    own = 8 * each
    if matrix.columns <= ALL_LISTED:
        # One list of all columns in each segment, but at most 32 bytes for each element.
        own = min(lists / SEGMENT_ROWS, 32 * each)
    return max(1, int((OPERAND_BYTES - lists) / (max(36 * each, 24 * each + own) + 40)))


SPARSE = Footprint(max_rows=_sparse_rows, min_rows=256)
"""A core that compares rows by their elements: the cost of a pair depends on the columns that both
rows have."""

GPU = Footprint(
    max_rows=lambda matrix: max(1, GPU_OPERAND_BYTES // (matrix.columns * matrix.dtype.itemsize)),
    # Larger than for a core, because a GPU is so much faster.
    min_rows=1 << 13,
    # More of the larger tiles would overflow and be given up.
    open_ended_rows=1 << 14,
    task={"num_gpus": 1, "lasting": True},
)
"""A GPU, with one process that keeps its memory from tile to tile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartLimits:
    rows: int | None = None
    """Most rows, and as many columns, of a part; None: as many as an operand may have."""
    joins: bool = False
    """True if a task may do several tiles, because their parts are merged into one."""
    open_ended: bool = False
    """True if the size of a part is unknown before the tile is computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    limits: PartLimits
    footprint: Footprint
    queries: MatrixInfo
    matrix: MatrixInfo
    self_join: bool
    slots: int
    block_rows: int | None = None
    parts: int = 1
    """Ranges of rows; each has an owner and a file of the result."""

    @property
    def operand_rows(self) -> int:
        """The most rows that a task prepares at once."""
        most = min(self.footprint.max_rows(rows) for rows in (self.queries, self.matrix))
        if self.limits.open_ended and self.footprint.open_ended_rows is not None:
            most = min(most, self.footprint.open_ended_rows)
        return most if self.limits.rows is None else min(most, self.limits.rows)

    @property
    def max_block_rows(self) -> int:
        """The most rows of a task; with more than ``operand_rows``, it does several tiles."""
        most = self.operand_rows
        if not (self.limits.rows and self.limits.joins and self.footprint.joins):
            return most
        tasks = max(TILE_TASKS, TILES_A_SLOT * self.slots)
        enough = math.ceil(max(self.queries.rows, self.matrix.rows) / math.sqrt(2 * tasks))
        return max(most, min(enough, self.limits.rows))

    def tile_rows(self, record: BlockRecord[Any]) -> tuple[int, int]:
        """Return how many rows of the queries, and of the matrix, one tile has.

        In a self-join equally many.
        """
        sizes = self._kept(record, self._tile_rows())
        return sizes[0], sizes[-1]

    def _tile_rows(self) -> tuple[int, ...]:
        if self.block_rows:
            return (min(self.block_rows, self.operand_rows),)
        most = self.max_block_rows
        enough = math.isqrt(int(self.footprint.tile_products / self.matrix.columns))
        for_all_slots = self.matrix.rows // math.ceil(math.sqrt(2 * self.slots))
        least = max(self.footprint.min_rows, min(enough, for_all_slots))
        tiles = TILES_A_SLOT * self.slots
        if self.self_join:
            blocks = choose_block_count(self.slots, self.matrix.rows, least, most)
            return (math.ceil(self.matrix.rows / blocks),)
        # Queries are cut first, which leaves nothing to merge; if they are few, the matrix too, to
        # keep all slots busy.
        rows = min(
            most,
            max(math.ceil(self.queries.rows * math.ceil(self.matrix.rows / most) / tiles), least),
        )
        beside = math.ceil(tiles / math.ceil(self.queries.rows / rows))
        return rows, min(most, max(math.ceil(self.matrix.rows / beside), least))

    def strip_rows(self, record: BlockRecord[Any], row_bytes: int) -> int:
        """Return how many rows a strip has, of which a task computes all columns."""
        most = min(self.operand_rows, max(1, PART_BYTES // row_bytes))
        if self.block_rows:
            return min(self.block_rows, most)
        enough = math.ceil(self.queries.rows / (TILES_A_SLOT * self.slots))
        return self._kept(record, (min(most, max(enough, self.footprint.min_rows)),))[0]

    @property
    def tasks(self) -> int:
        sizes = self._tile_rows()
        blocks = math.ceil(self.queries.rows / sizes[0])
        return (
            blocks * (blocks + 1) // 2
            if self.self_join
            else blocks * math.ceil(self.matrix.rows / sizes[-1])
        )

    @property
    def pairs(self) -> float:
        return self.queries.rows * self.matrix.rows / (2 if self.self_join else 1)

    def _kept(self, record: BlockRecord[Any], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the sizes that an earlier run of the job chose, or keep ``sizes`` for the next."""
        # A size that the user asked for is part of the record's identity already, so it need not be
        # kept.
        if self.block_rows:
            return sizes
        # Ignore sizes above this run's limit, whatever an earlier run chose.
        most = max(self.max_block_rows, self.limits.rows or 0)
        return keep_numbers(record.folder / SIZES, sizes, most)


def keep_numbers(path: Path, numbers: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return the numbers that an earlier run of the job kept, or keep ``numbers`` for the next.

    Earlier ones of which one is above ``most`` are replaced.
    """
    # A run that ended before this file was complete has recorded nothing yet.
    with suppress(OSError, ValueError):
        kept = tuple(int(text) for text in path.read_text(encoding="ascii").split())
        if len(kept) == len(numbers) and all(1 <= number <= most for number in kept):
            return kept
    put(path, " ".join(map(str, numbers)) + "\n")
    return numbers

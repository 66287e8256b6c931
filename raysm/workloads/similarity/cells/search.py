"""What one task does: it looks for the neighbors of the rows at some places, in the cells that are the nearest to each.

What flows in are places; what flows out are keys whose indices are numbers in the matrix. Rows that look into one cell
do so together, as a tile: an exact engine finds the best of it, so all that is missed lies in cells that were left out.

**Memory** of n rows, beside the interpreter: the rows, their cheap form, n * probes * 16 bytes, n * k * 8, and of one
cell, or of a part of a large one, its rows and their cheap form.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, row_blocks
from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, INDEX_BITS
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.cells.building import comparer_of, without_own
from raysm.workloads.similarity.cells.centroids import Comparer
from raysm.workloads.similarity.cells.index import Index
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.tasks.context import Context

__all__ = ["search"]


def search(context: Context, index: Index, k: int, places: RowBlock) -> NDArray[np.uint64]:
    """Return keys[rows, k] of the queries at these places, each row's best first; of zero rows they mean nothing."""
    comparer = comparer_of(context)
    tile = context.queries.gather(index.queries.numbers[places.start : places.stop])
    # A row of the matrix finds itself first, or one that is equal to it: one more is kept, and taken away.
    best = Best.empty(tile.norms, k + context.self_join)
    # Nobody is looked for by a zero row.
    rows, ranks = np.flatnonzero(tile.norms), range(index.probes)
    while len(rows):
        for cell, those in _visits(comparer, index, tile, rows, ranks):
            for members in row_blocks_of(index.matrix.members(cell), comparer.step):
                _look_into(context, comparer, index, members, (tile, those, best))
        # Cells may be so small that theirs are fewer than are asked for: those rows look into twice as many.
        rows = rows[best.keys[rows, -1] == EMPTY_KEY]
        ranks = range(ranks.stop, min(2 * ranks.stop, len(index.centroids)))
    numbers = np.arange(places.start, places.stop) if context.self_join else None
    return _numbered(without_own(best.keys, numbers), index)


def row_blocks_of(block: RowBlock, step: int) -> list[RowBlock]:
    """Cut a range into ranges of at most ``step`` rows."""
    return [RowBlock(block.start + cut.start, block.start + cut.stop) for cut in row_blocks(block.rows, step)]


def _visits(
    comparer: Comparer, index: Index, tile: Tile, rows: NDArray[np.int64], ranks: range
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each cell that stands at these places among the nearest to some of the rows, with those rows."""
    parts = []
    for start in range(0, len(rows), comparer.step):
        some = rows[start : start + comparer.step]
        ready = comparer.ready(Tile(start=0, rows=tile.rows[some], norms=tile.norms[some]))
        parts.append(comparer.nearest(ready, index.centroids, ranks.stop)[:, ranks.start :])
    cells = np.concatenate(parts)
    order = np.argsort(cells, axis=None, kind="stable")
    ordered = cells.ravel()[order]
    edges = np.flatnonzero(np.diff(ordered, prepend=-1, append=len(index.centroids)))
    for start, stop in zip(edges.tolist(), edges[1:].tolist(), strict=False):
        yield int(ordered[start]), rows[order[start:stop] // len(ranks)]


def _look_into(
    context: Context,
    comparer: Comparer,
    index: Index,
    members: RowBlock,
    looking: tuple[Tile, NDArray[np.int64], Best],
) -> None:
    """Take the best of some members of a cell into the best of those rows that look into it."""
    tile, rows, best = looking
    # By their places: with those, what is found in one cell and what in the next is one order.
    right = comparer.ready(
        context.matrix.gather(index.matrix.numbers[members.start : members.stop], start=members.start)
    )
    # In parts: where rows are all alike, all of a task's look into one cell.
    for start in range(0, len(rows), comparer.step):
        some = rows[start : start + comparer.step]
        left = comparer.ready(Tile(start=0, rows=tile.rows[some], norms=tile.norms[some]))
        mine = Best(best.keys[some], best.lower_bounds[some])
        comparer.engine.topk(left, right, mine, None, same=False)
        best.keys[some] = mine.keys


def _numbered(keys: NDArray[np.uint64], index: Index) -> NDArray[np.uint64]:
    """Return the keys with numbers in the place of places, and so those that tie by their numbers."""
    # Of a zero row, say: no place stands in it that could be looked up.
    empty = keys == EMPTY_KEY
    numbers = index.matrix.numbers[np.where(empty, 0, keys & INDEX_BITS).astype(np.int64)].astype(np.uint64)
    return np.sort(np.where(empty, EMPTY_KEY, (keys & ~INDEX_BITS) | numbers), axis=1)

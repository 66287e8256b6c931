"""What one task does for top-k: of the rows of a tile, and of its columns, the best k that the tile holds.

What flows in, with the tile, are lower bounds: scores that the k-th best of a row is known to reach, from tiles that
were computed before. What flows out are the keys (``keys``) of those who reach them: after a few tiles, few.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, INDEX_BITS, encode
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import EngineCache, engine_cache_of
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["TileBounds", "best_arrays", "topk_tile"]


# Without ``==``: that of arrays is an array, which a dataclass cannot ask for its truth.
@dataclass(frozen=True, slots=True, eq=False)
class TileBounds:
    """What was known of a tile's rows when it was dispatched; none of it changes the answer."""

    row_bounds: NDArray[np.float32]
    """lower_bounds[rows]."""
    column_bounds: NDArray[np.float32]
    """lower_bounds[columns]; empty where the columns are not served."""
    max_tile_rows: int | None = None
    """Most rows that are made ready at once: a larger tile is done in several, and their best leave as one part."""


def topk_tile(context: Context, k: int, task: TileTask) -> dict[str, NDArray[Any]]:
    """Return the keys of a tile's rows, ``counts[rows]`` and ``keys`` one row after the other, each sorted.

    A tile of two different blocks of one matrix serves its columns too: ``column_counts`` and ``column_keys``. Keys
    hold the numbers of rows in the matrix, whatever their places.
    """
    cache, tile, bounds = engine_cache_of(context), task.tile, task.hint
    once = context.self_join and tile.rows == tile.columns
    cuts = _Cuts(cache, bounds.max_tile_rows)
    best = Best.empty(cuts.norms(tile.rows, queries=True), k, bounds.row_bounds)
    other = Best.empty(cuts.norms(tile.columns), k, bounds.column_bounds) if task.mirrored else best
    mine = list(cuts.pieces(tile.rows, best))
    if once:
        theirs: list[tuple[RowBlock, Best | None]] = list(mine)
    else:
        theirs = list(cuts.pieces(tile.columns, other if task.mirrored else None))
    for at, (rows, first) in enumerate(mine):
        # Of a tile on the diagonal, each pair once.
        for columns, second in theirs[at:] if once else theirs:
            left, right = cache.operand(rows, queries=True), cache.operand(columns)
            cache.engine.topk(left, right, first, second, same=context.self_join)
    return _numbered(best_arrays(best, other), task)


def best_arrays(rows: Best, columns: Best) -> dict[str, NDArray[Any]]:
    """Return what is handed back of a tile's rows and columns; of columns that are its rows, once."""
    counts, keys = _reaching(rows)
    if columns is rows:
        return {"counts": counts, "keys": keys}
    column_counts, column_keys = _reaching(columns)
    return {"counts": counts, "keys": keys, "column_counts": column_counts, "column_keys": column_keys}


def _numbered(arrays: dict[str, NDArray[Any]], task: TileTask) -> dict[str, NDArray[Any]]:
    """Return the arrays with keys whose indices are numbers; a tile's rows rise alike in both orders, so ties stay."""
    arrays["keys"] = _with_numbers(arrays["keys"], task.column_numbers)
    if "column_keys" in arrays:
        arrays["column_keys"] = _with_numbers(arrays["column_keys"], task.row_numbers)
    return arrays


def _with_numbers(keys: NDArray[np.uint64], numbers: Any) -> NDArray[np.uint64]:
    places = (keys & INDEX_BITS).astype(np.int64)
    numbered = numbers(places)
    # Where places are the numbers, which is so of every matrix that lies whole, the keys stay as they are.
    return keys if numbered is places else (keys & ~INDEX_BITS) | numbered.astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The pieces in which a tile is made ready."""

    cache: EngineCache
    max_rows: int | None

    def of(self, block: RowBlock) -> list[RowBlock]:
        """Cut a block into equal ones."""
        count = math.ceil(block.rows / (self.max_rows or max(1, block.rows)))
        return tiling.row_cuts(block, math.ceil(block.rows / max(1, count)))

    def norms(self, block: RowBlock, *, queries: bool = False) -> NDArray[np.float64]:
        """Return norms[rows] of a block."""
        return np.concatenate([self.cache.tile(cut, queries=queries).norms for cut in self.of(block)])

    def pieces(self, block: RowBlock, best: Best | None) -> Iterator[tuple[RowBlock, Any]]:
        """Yield the pieces of a block, each with its part of the best; None: it is not served."""
        for cut in self.of(block):
            rows = slice(cut.start - block.start, cut.stop - block.start)
            # Views: what engines find of a piece stands in the best of the whole tile at once.
            yield cut, None if best is None else Best(best.keys[rows], best.lower_bounds[rows])


def _reaching(best: Best) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Return who reaches the lower bounds: counts[n], and their keys."""
    # The last key of that score: whoever ties with the bound may still be among the k, by a lower index.
    last = encode(best.lower_bounds, np.full(len(best.lower_bounds), 0xFFFFFFFF))
    reach = (best.keys <= last[:, None]) & (best.keys != EMPTY_KEY)
    return np.count_nonzero(reach, axis=1).astype(np.uint32), best.keys[reach]

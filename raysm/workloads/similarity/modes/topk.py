"""What one task does for top-k: of the rows of a tile, and of its columns, the best k that the tile holds.

What flows in, with the tile, are floors: scores that the k-th best of a row is known to reach, from tiles that were
computed before. What flows out are the keys (``keys``) of those who reach them: after a few tiles, few.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import NOBODY, encode
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import Bench, bench_of

__all__ = ["Deal", "found_arrays", "topk_tile"]


@dataclass(frozen=True, slots=True, eq=False)
class Deal:
    """A tile with what was known of its rows when it was dispatched; none of it changes the answer."""

    tile: TileBlock
    """Which pairs."""
    row_floors: NDArray[np.float32]
    """floors[rows]."""
    column_floors: NDArray[np.float32]
    """floors[columns]; empty where the columns are not served."""
    side_rows: int | None = None
    """Most rows that are made ready at once: a larger tile is done in several, and their best leave as one part."""

    def __str__(self) -> str:
        """Return the tile's name: records and messages know it by that."""
        return str(self.tile)


def topk_tile(context: Context, k: int, deal: Deal) -> dict[str, NDArray[Any]]:
    """Return the keys of a tile's rows, ``counts[rows]`` and ``keys`` one row after the other, each sorted.

    A tile of two different blocks of one matrix serves its columns too: ``column_counts`` and ``column_keys``.
    """
    bench = bench_of(context)
    tile, same = deal.tile, context.same
    once = same and tile.rows == tile.columns
    best = Best.empty(_norms(bench, deal, tile.rows, seekers=True), k, deal.row_floors)
    other = best if once or not same else Best.empty(_norms(bench, deal, tile.columns), k, deal.column_floors)
    mine = list(_pieces(deal, tile.rows, best))
    theirs = mine if once else list(_pieces(deal, tile.columns, other)) if same else _unserved(deal)
    for at, (rows, first) in enumerate(mine):
        # Of a tile on the diagonal, each pair once.
        for columns, second in theirs[at:] if once else theirs:
            left, right = bench.side(rows, seekers=True), bench.side(columns)
            bench.engine.topk(left, right, first, second, same=same)
    return found_arrays(best, other)


def found_arrays(rows: Best, columns: Best) -> dict[str, NDArray[Any]]:
    """Return what is handed back of a tile's rows and columns; of columns that are its rows, once."""
    counts, keys = _kept(rows)
    if columns is rows:
        return {"counts": counts, "keys": keys}
    column_counts, column_keys = _kept(columns)
    return {"counts": counts, "keys": keys, "column_counts": column_counts, "column_keys": column_keys}


def _cuts(deal: Deal, block: RowBlock) -> list[RowBlock]:
    """Cut a block into equal ones that can be made ready."""
    count = math.ceil(block.rows / (deal.side_rows or max(1, block.rows)))
    return tiling.row_cuts(block, math.ceil(block.rows / max(1, count)))


def _pieces(deal: Deal, block: RowBlock, best: Best) -> Iterator[tuple[RowBlock, Best]]:
    for cut in _cuts(deal, block):
        own = slice(cut.start - block.start, cut.stop - block.start)
        yield cut, Best(best.keys[own], best.floors[own])


def _unserved(deal: Deal) -> list[tuple[RowBlock, None]]:
    return [(cut, None) for cut in _cuts(deal, deal.tile.columns)]


def _norms(bench: Bench, deal: Deal, block: RowBlock, *, seekers: bool = False) -> NDArray[np.float64]:
    return np.concatenate([bench.tile(cut, seekers=seekers).norms for cut in _cuts(deal, block)])


def _kept(best: Best) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Return who reaches the floors: counts[n], and their keys."""
    # The last key of that score: whoever ties with the floor may still be among the k, by a lower index.
    last = encode(best.floors, np.full(len(best.floors), 0xFFFFFFFF))
    kept = (best.keys <= last[:, None]) & (best.keys != NOBODY)
    return np.count_nonzero(kept, axis=1).astype(np.uint32), best.keys[kept]

"""What one task does for top-k: of the rows of a tile, and of its columns, the best k that the tile holds.

What flows in, with the tile, are floors: scores that the k-th best of a row is known to reach, from tiles that were
computed before. What flows out are the keys (``keys``) of those who reach them: after a few tiles, few.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import TileBlock
from raysm.workloads.similarity.bench import bench_of
from raysm.workloads.similarity.context import Context
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.keys import NOBODY, encode

__all__ = ["Deal", "topk_tile"]


@dataclass(frozen=True, slots=True, eq=False)
class Deal:
    """A tile with what was known of its rows when it was dispatched; none of it changes the answer."""

    tile: TileBlock
    """Which pairs."""
    row_floors: NDArray[np.float32]
    """floors[rows]."""
    column_floors: NDArray[np.float32]
    """floors[columns]; empty where the columns are not served."""

    def __str__(self) -> str:
        """Return the tile's name: records and messages know it by that."""
        return str(self.tile)


def topk_tile(context: Context, k: int, deal: Deal) -> dict[str, NDArray[Any]]:
    """Return the keys of a tile's rows, ``counts[rows]`` and ``keys`` one row after the other, each sorted.

    A tile of two different blocks of one matrix serves its columns too: ``column_counts`` and ``column_keys``.
    """
    bench = bench_of(context)
    tile, same = deal.tile, context.same
    left, right = bench.side(tile.rows, seekers=True), bench.side(tile.columns)
    best = Best.empty(left.tile.norms, k, deal.row_floors)
    if not same or tile.rows == tile.columns:
        bench.engine.topk(left, right, best, best if same else None, same=same)
        counts, keys = _kept(best)
        return {"counts": counts, "keys": keys}
    other = Best.empty(right.tile.norms, k, deal.column_floors)
    bench.engine.topk(left, right, best, other, same=True)
    (counts, keys), (column_counts, column_keys) = _kept(best), _kept(other)
    return {"counts": counts, "keys": keys, "column_counts": column_counts, "column_keys": column_keys}


def _kept(best: Best) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Return who reaches the floors: counts[n], and their keys."""
    # The last key of that score: whoever ties with the floor may still be among the k, by a lower index.
    last = encode(best.floors, np.full(len(best.floors), 0xFFFFFFFF))
    kept = (best.keys <= last[:, None]) & (best.keys != NOBODY)
    return np.count_nonzero(kept, axis=1).astype(np.uint32), best.keys[kept]

"""Sparse rows for an engine of dense ones: made dense a few at a time, in bounded memory.

For machines that cannot compile ``sparse.c``; the answers are the same.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseTile
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.engines.protocol import Best, Frame

__all__ = ["dense_tiles", "pairs_densely", "scores_densely", "topk_densely"]

DENSE_BYTES = 32 << 20
"""Most of one tile that is made dense, as float32."""

DENSE_ROWS = 2048
"""Most rows of it."""


def dense_tiles(tile: SparseTile) -> Iterator[Tile]:
    """Cut a tile of sparse rows into tiles of dense ones, one at a time."""
    rows = tile.rows
    step = max(1, min(DENSE_ROWS, DENSE_BYTES // (4 * rows.columns)))
    for start in range(0, len(rows), step):
        norms = tile.norms[start : start + step]
        yield Tile(start=tile.start + start, rows=rows[start : start + step].dense(), norms=norms)


def topk_densely(left: SparseTile, right: SparseTile, best_left: Best, best_right: Best | None, same: bool) -> None:
    """See ``Engine.topk``."""
    plain, frame = PlainEngine(), Frame.plain(left.rows.shape[1])
    once = best_right is best_left
    for above in dense_tiles(left):
        mine = _part(best_left, above, left)
        first = plain.prepare(above, frame)
        if once:
            plain.topk(first, first, mine, mine, same=same)
        for beside in dense_tiles(right):
            # Each two parts once, as no pair may be offered to a Best twice.
            if once and beside.start <= above.start:
                continue
            theirs = None if best_right is None else _part(best_right, beside, right)
            # Prepared anew for each part above: kept, the parts would be the whole tile made dense.
            plain.topk(first, plain.prepare(beside, frame), mine, theirs, same=same)


def _part(best: Best, part: Tile, whole: SparseTile) -> Best:
    some = slice(part.start - whole.start, part.start - whole.start + len(part))
    # Views: what is found for a part is written into the whole.
    return Best(best.keys[some], best.lower_bounds[some])


def pairs_densely(
    left: SparseTile, right: SparseTile, threshold: np.float32, same: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]]:
    """Yield rows, counted from the tile's first, with neighbors and scores, see ``Engine.pairs``."""
    plain, frame = PlainEngine(), Frame.plain(left.rows.shape[1])
    for above in dense_tiles(left):
        first = plain.prepare(above, frame)
        for beside in dense_tiles(right):
            pairs = plain.pairs(first, plain.prepare(beside, frame), threshold, same=same)
            rows = np.repeat(np.arange(len(above)) + above.start - left.start, np.diff(pairs.offsets))
            yield rows, pairs.neighbors, pairs.similarities


def scores_densely(left: SparseTile, right: SparseTile) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """Yield scores[n, m] with the row and the column, counted from the tiles' first, at which they begin."""
    plain = PlainEngine()
    for above in dense_tiles(left):
        for beside in dense_tiles(right):
            out = np.empty((len(above), len(beside)), dtype=np.float32)
            plain.scores(above, beside, out)
            yield above.start - left.start, beside.start - right.start, out

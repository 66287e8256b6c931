"""The engine that needs only NumPy: float64 products by its BLAS, several times slower.

Every score comes from ``exact_scores``: a float64 product of whole tiles, and the definition if
rounding leaves the score open. So there is no filter whose bound would need a proof.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.features.similarity.cluster.arithmetic.keys import EMPTY_KEY, decode, encode
from raysm.features.similarity.cluster.arithmetic.score import Tile, exact_scores
from raysm.features.similarity.cluster.engines.protocol import (
    Best,
    DenseSide,
    Frame,
    Pairs,
    PreparedTile,
)

ENTRIES = 1 << 20
ROW_BYTES = 32 << 20


class PlainEngine:
    name = "float64 NumPy"

    def __init__(self, why: str = "") -> None:
        """Add to the name the reason why there is no faster engine, if one is given."""
        if why:
            self.name = f"{self.name} ({why})"

    def prepare(self, tile: Tile, frame: Frame) -> DenseSide:
        return PreparedTile(tile=tile, prepared=None, nbytes=0)

    def topk(
        self,
        left: DenseSide,
        right: DenseSide,
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        for i, above, j, beside, scores in _score_parts(left.tile, right.tile):
            first = max(above.start, beside.start)
            last = min(above.start + len(above), beside.start + len(beside))
            if same and first < last:
                # No row is its own neighbor.
                rows = np.arange(first, last)
                scores[rows - above.start, rows - beside.start] = -np.inf
            _merge(best_left, slice(i, i + len(above)), scores, beside.start)
            # A tile with itself is merged only once.
            if best_right is not None and best_right is not best_left:
                _merge(best_right, slice(j, j + len(beside)), scores.T, above.start)

    def pairs(
        self, left: DenseSide, right: DenseSide, threshold: np.float32, *, same: bool
    ) -> Pairs:
        found = []
        for i, above, _, beside, scores in _score_parts(left.tile, right.tile):
            chosen = scores >= threshold
            if same:
                # Keep pairs with row < neighbor.
                chosen = np.triu(chosen, above.start - beside.start + 1)
            rows, columns = np.nonzero(chosen)
            found.append((rows + i, columns + beside.start, scores[rows, columns]))
        return Pairs.of(found, len(left))

    def scores(self, left: Tile, right: Tile, out: NDArray[Any]) -> None:
        for i, above, j, beside, scores in _score_parts(left, right):
            out[i : i + len(above), j : j + len(beside)] = scores


def _score_parts(
    left: Tile, right: Tile
) -> Iterator[tuple[int, Tile, int, Tile, NDArray[np.float32]]]:
    """Yield the parts of two tiles, where each begins, and the scores of all their pairs."""
    step = max(1, min(math.isqrt(ENTRIES), ROW_BYTES // (8 * left.rows.shape[1])))
    for i in range(0, len(left), step):
        above = left.part(i, i + step)
        for j in range(0, len(right), step):
            beside = right.part(j, j + step)
            yield i, above, j, beside, exact_scores(above, beside)


def _merge(best: Best, some: slice, scores: NDArray[np.float32], start: int) -> None:
    """Merge scores[n, m] into the best of some rows.

    ``start`` is the number of the first of the m rows.
    """
    keys = best.keys[some]
    lower_bounds = best.lower_bounds[some]
    least = np.maximum(decode(keys[:, -1])[0], lower_bounds)
    better = np.flatnonzero((scores.max(axis=1) >= least) & (lower_bounds < np.inf))
    if not len(better):
        return
    chosen = np.ascontiguousarray(scores[better])
    new = encode(chosen, np.broadcast_to(np.arange(start, start + chosen.shape[1]), chosen.shape))
    new[chosen == -np.inf] = EMPTY_KEY
    everyone = np.concatenate([keys[better], new], axis=1)
    # Partition first, so that only the k best are sorted.
    everyone.partition(keys.shape[1] - 1, axis=1)
    nearest = everyone[:, : keys.shape[1]]
    nearest.sort(axis=1)
    keys[better] = nearest

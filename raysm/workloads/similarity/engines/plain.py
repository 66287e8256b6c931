"""The engine that needs nothing but NumPy: float32 products by its BLAS. It is always there."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, decode, encode
from raysm.workloads.similarity.arithmetic.products import CROWDED, Tile, below, exact_scores, float32_bound, normalised
from raysm.workloads.similarity.arithmetic.score import pair_scores
from raysm.workloads.similarity.engines.protocol import Best, Frame, Pairs, PreparedTile

__all__ = ["PlainEngine"]

PRODUCT_ENTRIES = 1 << 22
"""Largest product of one go."""

WIDE_ENTRIES = 1 << 20
"""Largest product in float64."""

WIDE_BYTES = 32 << 20
"""Largest copy of rows in float64."""


class PlainEngine:
    """float32 products of whole tiles, decided by ``products.float32_bound``; what is overflowed, in float64."""

    name = "float32 NumPy"

    def __init__(self, why: str = "") -> None:
        """Say in the name why there is no faster engine, where a reason is given."""
        if why:
            self.name = f"{self.name} ({why})"

    def prepare(self, tile: Tile, frame: Frame) -> PreparedTile[Tile]:
        """Divide the rows by their norms, as float32."""
        unit = normalised(tile)
        return PreparedTile(tile=tile, prepared=(unit, frame.integral), nbytes=unit.nbytes)

    def topk(
        self,
        left: PreparedTile[Tile],
        right: PreparedTile[Tile],
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        """See ``Engine.topk``."""
        # Of a tile with itself each row is served once.
        other = None if best_right is best_left else best_right
        step = max(1, PRODUCT_ENTRIES // len(left))
        near = np.empty((len(left), min(step, len(right))), dtype=np.float32)
        bound = float32_bound(left.tile.rows.shape[1])
        for start in range(0, len(right), step):
            part = right.tile.part(start, start + step)
            product = near[:, : len(part)]
            np.matmul(left.prepared[0], right.prepared[0][start : start + step].T, out=product)
            if same:
                # Before anything is chosen: a row's own score would count among the k that its limit is taken from.
                _leave_out_self(product, left.tile, part)
            _serve(best_left.keys, best_left.lower_bounds, product, left.tile, part, bound, left.prepared[1], same)
            if other is not None:
                keys, lower_bounds = other.keys[start : start + step], other.lower_bounds[start : start + step]
                # The product is most of the work: turned, it serves the other side too.
                _serve(keys, lower_bounds, product.T, part, left.tile, bound, left.prepared[1], same)

    def pairs(self, left: PreparedTile[Tile], right: PreparedTile[Tile], threshold: np.float32, *, same: bool) -> Pairs:
        """See ``Engine.pairs``."""
        lower = below(np.array([threshold]), float32_bound(left.tile.rows.shape[1]))[0]
        step = max(1, PRODUCT_ENTRIES // len(right))
        parts = [
            _pairs(left, right, slice(start, start + step), lower, threshold, same)
            for start in range(0, len(left), step)
        ]
        counts, neighbors, similarities = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return Pairs(offsets=offsets, neighbors=neighbors, similarities=similarities)

    def scores(self, left: Tile, right: Tile, out: NDArray[Any]) -> None:
        """See ``Engine.scores``."""
        # Both sides: floats on one are enough for a BLAS to round, and its sums would be taken for exact.
        _exact(left, right, all(tile.rows.dtype.kind in "iub" for tile in (left, right)), out)


def _wide_parts(left: Tile, right: Tile) -> Iterator[tuple[int, Tile, int, Tile]]:
    """Cut two tiles into pairs of tiles whose product in float64, and whose rows in float64, are small enough."""
    step = max(1, min(math.isqrt(WIDE_ENTRIES), WIDE_BYTES // (8 * left.rows.shape[1])))
    for i in range(0, len(left), step):
        for j in range(0, len(right), step):
            yield i, left.part(i, i + step), j, right.part(j, j + step)


def _exact(left: Tile, right: Tile, integral: bool, out: NDArray[Any]) -> None:
    for i, above, j, beside in _wide_parts(left, right):
        out[i : i + len(above), j : j + len(beside)] = exact_scores(above, beside, integral=integral)


def _leave_out_self(scores: NDArray[np.float32], left: Tile, right: Tile) -> None:
    first, last = max(left.start, right.start), min(left.start + len(left), right.start + len(right))
    if first < last:
        rows = np.arange(first, last)
        scores[rows - left.start, rows - right.start] = -np.inf


def _serve(
    best: NDArray[np.uint64],
    lower_bounds: NDArray[np.float32],
    near: NDArray[np.float32],
    left: Tile,
    right: Tile,
    bound: float,
    integral: bool,
    same: bool,
) -> None:
    """Merge the rows of ``right`` that may be among the best of ``left``, by the products ``near``, into ``best``."""
    lower = _lower_bounds(near, best, lower_bounds, bound)
    chosen = near > lower[:, None]
    count = int(np.count_nonzero(chosen))
    if count > CROWDED * chosen.size:
        _merge_all(best, lower_bounds, left, right, integral, same)
    elif count:
        _merge_pairs(best, left, right, np.flatnonzero(chosen))


def _lower_bounds(
    near: NDArray[np.float32], best: NDArray[np.uint64], lower_bounds: NDArray[np.float32], bound: float
) -> NDArray[np.float32]:
    """Return, for each row, a number that the product of every column that may enter exceeds.

    A row with k answers, or with a floor, admits only who reaches that score: its product exceeds the score less the
    bound. Before, the tile itself helps: k of its scores are at least its k-th best product less the bound, so the
    k-th best score is too, and a column that reaches that has a product of at least the k-th best less two bounds.
    """
    k, columns = best.shape[1], near.shape[1]
    lower = below(np.maximum(decode(best[:, -1])[0], lower_bounds), bound)
    open_rows = np.flatnonzero((best[:, -1] == EMPTY_KEY) & (lower_bounds < np.inf))
    # Fewer columns than k bound no row's k-th best.
    if len(open_rows) and columns >= k:
        # A choice of rows is a copy of their products: some at a time.
        step = max(1, WIDE_ENTRIES // columns)
        for start in range(0, len(open_rows), step):
            rows = open_rows[start : start + step]
            kth = np.partition(near[rows], columns - k, axis=1)[:, columns - k]
            lower[rows] = np.maximum(lower[rows], below(kth, 2 * bound))
    # These rows look for no neighbors.
    lower[lower_bounds == np.inf] = np.inf
    return lower


def _scores_at(left: Tile, right: Tile, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float32]:
    scores = np.empty(len(i), dtype=np.float32)
    step = max(1, WIDE_ENTRIES // left.rows.shape[1])
    for start in range(0, len(i), step):
        rows, columns = i[start : start + step], j[start : start + step]
        scores[start : start + step] = pair_scores(
            left.rows[rows], right.rows[columns], left.norms[rows], right.norms[columns]
        )
    return scores


def _merge_pairs(best: NDArray[np.uint64], left: Tile, right: Tile, positions: NDArray[np.int64]) -> None:
    """Score the pairs at flat positions of the tile by the definition, and merge them into the rows' best."""
    i, j = np.divmod(positions, len(right))
    keys = encode(_scores_at(left, right, i, j), j + right.start)
    k = best.shape[1]
    rows, counts = np.unique(i, return_counts=True)
    everyone = np.concatenate([keys, best[rows].ravel()])
    order = np.lexsort((everyone, np.concatenate([i, np.repeat(rows, k)])))
    # Each row's keys now lie together, sorted: its old k and its new ones.
    starts = np.cumsum(counts + k) - (counts + k)
    best[rows] = everyone[order[starts[:, None] + np.arange(k)]]


def _merge_all(
    best: NDArray[np.uint64], lower_bounds: NDArray[np.float32], left: Tile, right: Tile, integral: bool, same: bool
) -> None:
    """Score every pair of the tile from float64 products, and merge them into the rows' best."""
    k = best.shape[1]
    for i, above, _, beside in _wide_parts(left, right):
        scores = exact_scores(above, beside, integral=integral)
        columns = np.arange(beside.start, beside.start + len(beside))
        keys = encode(scores, np.broadcast_to(columns, scores.shape))
        first, last = max(above.start, beside.start), min(above.start + len(above), beside.start + len(beside))
        if same and first < last:
            rows = np.arange(first, last)
            keys[rows - above.start, rows - beside.start] = EMPTY_KEY
        mine = slice(i, i + len(above))
        better = (keys.min(axis=1) < best[mine, -1]) & (lower_bounds[mine] < np.inf)
        if not better.any():
            continue
        everyone = np.concatenate([best[mine][better], keys[better]], axis=1)
        # A whole tile of each row: only the k that stay are worth sorting.
        everyone.partition(k - 1, axis=1)
        nearest = everyone[:, :k]
        nearest.sort(axis=1)
        best[np.flatnonzero(better) + i] = nearest


def _pairs(
    left: PreparedTile[Tile],
    right: PreparedTile[Tile],
    some: slice,
    lower: np.float32,
    threshold: np.float32,
    same: bool,
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]:
    """Return the counts of the rows ``some`` of the left side, and their neighbors and scores."""
    part = left.tile.part(some.start, some.stop)
    scores = left.prepared[0][some] @ right.prepared[0].T
    chosen = scores > lower
    _upper(chosen, part, right.tile, same)
    if np.count_nonzero(chosen) > CROWDED * chosen.size:
        # Into the memory of the products, which are not needed any more.
        _exact(part, right.tile, left.prepared[1], scores)
        np.greater_equal(scores, threshold, out=chosen)
        # Again: the comparison has overwritten what was dropped.
        _upper(chosen, part, right.tile, same)
        i, j = np.nonzero(chosen)
        similarities = scores[i, j]
    else:
        i, j = np.nonzero(chosen)
        similarities = _scores_at(part, right.tile, i, j)
        enough = similarities >= threshold
        i, j, similarities = i[enough], j[enough], similarities[enough]
    return np.bincount(i, minlength=len(part)), (j + right.tile.start).astype(np.uint32), similarities


def _upper(chosen: NDArray[np.bool_], left: Tile, right: Tile, same: bool) -> None:
    """Drop what is not row < neighbor."""
    if same and right.start < left.start + len(left):
        rows, columns = np.arange(len(left)) + left.start, np.arange(len(right)) + right.start
        chosen &= rows[:, None] < columns[None, :]

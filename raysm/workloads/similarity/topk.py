"""What one task does for top-k: the best k of a block of rows among all rows.

Candidates come from float32 products with a proven bound (``products``); they alone are scored by the definition. A
row's answers are kept as *keys*, unsigned integers whose order is the answers' order: the score, descending, in the
high 32 bits, the neighbor's index in the low. Columns are walked in rising order, so a later column that only ties
with the k-th best can never enter. Zero rows need no product at all: they answer the lowest indices.
"""

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.context import PRODUCT_ENTRIES, WIDE_ENTRIES, Context, tile_rows, wide_parts
from raysm.workloads.similarity.products import CROWDED, Tile, below, exact_scores, float32_bound, normalised
from raysm.workloads.similarity.score import pair_scores

__all__ = ["NOBODY", "decode", "encode", "topk_block"]

NOBODY = np.uint64(2**64 - 1)
"""The key that comes after every other."""

SIGN = np.uint32(1 << 31)


def encode(scores: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return keys that rise as scores fall, then as indices rise; without NaN or negative zero, indices below 2**32."""
    bits = scores.view(np.uint32)
    # Positive floats rise with their bits, negative ones fall: turn both round at once.
    falling = np.where(bits & SIGN, bits, ~bits & ~SIGN)
    return (falling.astype(np.uint64) << np.uint64(32)) | indices.astype(np.uint64)


def decode(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores and indices of keys; ``NOBODY`` has no score: -inf."""
    falling = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(falling & SIGN, falling, ~falling & ~SIGN)
    scores = np.where(keys == NOBODY, np.float32(-np.inf), bits.view(np.float32))
    return scores, (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def topk_block(context: Context, k: int, block: RowBlock, tile_columns: int | None = None) -> NDArray[np.uint64]:
    """Return keys[block.rows, k], the best first, of the block's rows among all other rows.

    Args:
        context: What all blocks share.
        k: At most N - 1.
        block: The rows.
        tile_columns: Rows of the matrix that are compared with the block at a time; None fits them to the memory.
    """
    matrix = context.open()
    left = context.tile(matrix, block.start, block.stop)
    best = np.full((len(left), k), NOBODY, dtype=np.uint64)
    zero = np.flatnonzero(left.norms == 0)
    step = tile_columns or tile_rows(context.columns, max(1, PRODUCT_ENTRIES // len(left)))
    unit = normalised(left)
    product = np.empty((len(left), step), dtype=np.float32)
    hit = np.empty(product.shape, dtype=bool)
    for start in range(0, context.rows, step):
        right = context.tile(matrix, start, min(start + step, context.rows))
        near, chosen = product[:, : len(right)], hit[:, : len(right)]
        np.matmul(unit, normalised(right).T, out=near)
        _leave_out_self(near, left, right)
        lower = _lower_bounds(near, best, float32_bound(context.columns))
        lower[zero] = np.inf
        np.greater(near, lower[:, None], out=chosen)
        count = int(np.count_nonzero(chosen))
        if count > CROWDED * chosen.size:
            _merge_all(best, left, right, context.whole)
        elif count:
            _merge_pairs(best, left, right, np.flatnonzero(chosen))
    _answer_zero_rows(best, zero, left.start)
    return best


def _answer_zero_rows(best: NDArray[np.uint64], zero: NDArray[np.int64], start: int) -> None:
    k = best.shape[1]
    lowest = np.broadcast_to(np.arange(k), (len(zero), k))
    # From a row's own number on, each is the next one: a row is never its own neighbor.
    others = lowest + (lowest >= (zero + start)[:, None])
    best[zero] = encode(np.zeros(others.shape, dtype=np.float32), others)


def _leave_out_self(scores: NDArray[np.float32], left: Tile, right: Tile) -> None:
    first, last = max(left.start, right.start), min(left.start + len(left), right.start + len(right))
    if first < last:
        rows = np.arange(first, last)
        scores[rows - left.start, rows - right.start] = -np.inf


def _lower_bounds(near: NDArray[np.float32], best: NDArray[np.uint64], bound: float) -> NDArray[np.float32]:
    """Return, for each row, a number that the product of every column that may enter exceeds.

    A row with k answers admits a later column only with a better score than its k-th: its product exceeds that score
    less the bound. Before, the tile itself helps: k of its scores are at least its k-th best product less the bound,
    so the k-th best score is too, and whoever reaches that has a product of at least the k-th best less two bounds.
    """
    k, columns = best.shape[1], near.shape[1]
    lower = below(decode(best[:, -1])[0], bound)
    open_rows = np.flatnonzero(best[:, -1] == NOBODY)
    if len(open_rows) and columns >= k:
        step = max(1, WIDE_ENTRIES // columns)
        for start in range(0, len(open_rows), step):
            rows = open_rows[start : start + step]
            kth = np.partition(near[rows], columns - k, axis=1)[:, columns - k]
            lower[rows] = below(kth, 2 * bound)
    return lower


def _merge_pairs(best: NDArray[np.uint64], left: Tile, right: Tile, positions: NDArray[np.int64]) -> None:
    """Score the pairs at flat positions of the tile by the definition, and merge them into the rows' best."""
    i, j = np.divmod(positions, len(right))
    keys = np.empty(len(positions), dtype=np.uint64)
    step = max(1, WIDE_ENTRIES // left.rows.shape[1])
    for start in range(0, len(positions), step):
        some = slice(start, start + step)
        scores = pair_scores(left.rows[i[some]], right.rows[j[some]], left.norms[i[some]], right.norms[j[some]])
        keys[some] = encode(scores, j[some] + right.start)
    k = best.shape[1]
    rows, counts = np.unique(i, return_counts=True)
    everyone = np.concatenate([keys, best[rows].ravel()])
    order = np.lexsort((everyone, np.concatenate([i, np.repeat(rows, k)])))
    # Each row's keys now lie together, sorted: its old k and its new ones.
    starts = np.cumsum(counts + k) - (counts + k)
    best[rows] = everyone[order[starts[:, None] + np.arange(k)]]


def _merge_all(best: NDArray[np.uint64], left: Tile, right: Tile, whole: bool) -> None:
    """Score every pair of the tile from float64 products, and merge them into the rows' best."""
    k = best.shape[1]
    for above, beside in wide_parts(left, right):
        scores = exact_scores(above, beside, whole=whole)
        columns = np.arange(beside.start, beside.start + len(beside))
        keys = encode(scores, np.broadcast_to(columns, scores.shape))
        first, last = max(above.start, beside.start), min(above.start + len(above), beside.start + len(beside))
        if first < last:
            rows = np.arange(first, last)
            keys[rows - above.start, rows - beside.start] = NOBODY
        mine = slice(above.start - left.start, above.start - left.start + len(above))
        better = keys.min(axis=1) < best[mine, -1]
        if not better.any():
            continue
        everyone = np.concatenate([best[mine][better], keys[better]], axis=1)
        everyone.partition(k - 1, axis=1)
        kept = everyone[:, :k]
        kept.sort(axis=1)
        best[np.flatnonzero(better) + mine.start] = kept

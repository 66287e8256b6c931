"""What one task does for a threshold: the pairs of one tile that are similar enough."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import TileBlock
from raysm.workloads.similarity.context import WIDE_ENTRIES, Context, wide_parts
from raysm.workloads.similarity.products import CROWDED, Tile, below, exact_scores, float32_bound, normalised
from raysm.workloads.similarity.score import pair_scores

__all__ = ["Pairs", "threshold_block"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Pairs of one tile, sorted by row, then by neighbor."""

    offsets: NDArray[np.int64]
    """offsets[rows + 1]: the pairs of the tile's row i are offsets[i] to offsets[i + 1]."""
    neighbors: NDArray[np.uint32]
    """neighbors[n], numbers of rows of the matrix."""
    similarities: NDArray[np.float32]
    """similarities[n]."""


def threshold_block(context: Context, threshold: np.float32, block: TileBlock) -> Pairs:
    """Return the tile's pairs row < neighbor with a score of at least ``threshold``."""
    matrix = context.open()
    left = context.tile(matrix, block.rows.start, block.rows.stop)
    right = context.tile(matrix, block.columns.start, block.columns.stop)
    scores = normalised(left) @ normalised(right).T
    chosen = scores > below(np.array([threshold]), float32_bound(context.columns))[0]
    _upper(chosen, left, right)
    if np.count_nonzero(chosen) > CROWDED * chosen.size:
        for above, beside in wide_parts(left, right):
            i, j = above.start - left.start, beside.start - right.start
            scores[i : i + len(above), j : j + len(beside)] = exact_scores(above, beside, whole=context.whole)
        np.greater_equal(scores, threshold, out=chosen)
        _upper(chosen, left, right)
        positions = np.flatnonzero(chosen)
        similarities = scores.ravel()[positions]
    else:
        positions = np.flatnonzero(chosen)
        similarities = _scores_at(left, right, positions)
        enough = similarities >= threshold
        positions, similarities = positions[enough], similarities[enough]
    offsets = np.searchsorted(positions, np.arange(len(left) + 1) * len(right))
    neighbors = positions % len(right) + right.start
    return Pairs(offsets=offsets, neighbors=neighbors.astype(np.uint32), similarities=similarities)


def _upper(chosen: NDArray[np.bool_], left: Tile, right: Tile) -> None:
    """Drop what is not row < neighbor."""
    if right.start < left.start + len(left):
        rows, columns = np.arange(len(left)) + left.start, np.arange(len(right)) + right.start
        chosen &= rows[:, None] < columns[None, :]


def _scores_at(left: Tile, right: Tile, positions: NDArray[np.int64]) -> NDArray[np.float32]:
    scores = np.empty(len(positions), dtype=np.float32)
    step = max(1, WIDE_ENTRIES // left.rows.shape[1])
    for start in range(0, len(positions), step):
        i, j = np.divmod(positions[start : start + step], len(right))
        scores[start : start + step] = pair_scores(left.rows[i], right.rows[j], left.norms[i], right.norms[j])
    return scores

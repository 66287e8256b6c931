"""What one task does for the full matrix: all scores of one tile."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import TileBlock
from raysm.workloads.similarity.context import Context, wide_parts
from raysm.workloads.similarity.products import exact_scores

__all__ = ["full_block"]


def full_block(
    context: Context, dtype: Literal["float32", "float16"], block: TileBlock
) -> NDArray[np.float32] | NDArray[np.float16]:
    """Return scores[rows, columns] of the tile; float16 is the float32 score, rounded."""
    matrix = context.open()
    left = context.tile(matrix, block.rows.start, block.rows.stop)
    right = context.tile(matrix, block.columns.start, block.columns.stop)
    scores = np.empty((len(left), len(right)), dtype=dtype)
    for above, beside in wide_parts(left, right):
        i, j = above.start - left.start, beside.start - right.start
        scores[i : i + len(above), j : j + len(beside)] = exact_scores(above, beside, whole=context.whole)
    return scores

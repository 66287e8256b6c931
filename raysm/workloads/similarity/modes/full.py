"""What one task does for the full matrix: all scores of one tile."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock, row_blocks
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import bench_of

__all__ = ["full_tile"]


def full_tile(
    context: Context, dtype: Literal["float32", "float16"], tile: TileBlock, side_rows: int | None = None
) -> NDArray[np.float32] | NDArray[np.float16]:
    """Return scores[rows, columns] of the tile; float16 is the float32 score, rounded.

    Args:
        context: What the tasks know.
        dtype: Of the scores.
        tile: Which pairs.
        side_rows: Most rows of the matrix that are read at once, for the columns of a tile that is longer; None is all.
    """
    bench = bench_of(context)
    left, first = bench.tile(tile.rows, seekers=True), tile.columns.start
    scores = np.empty((len(left), tile.columns.rows), dtype=dtype)
    for cut in row_blocks(tile.columns.rows, side_rows or max(1, tile.columns.rows)):
        right = bench.tile(RowBlock(first + cut.start, first + cut.stop))
        bench.engine.scores(left, right, scores[:, cut.start : cut.stop])
    return scores

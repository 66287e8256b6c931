"""What one task does for the full matrix: all scores of one tile."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import TileBlock
from raysm.workloads.similarity.bench import bench_of
from raysm.workloads.similarity.context import Context

__all__ = ["full_tile"]


def full_tile(
    context: Context, dtype: Literal["float32", "float16"], tile: TileBlock
) -> NDArray[np.float32] | NDArray[np.float16]:
    """Return scores[rows, columns] of the tile; float16 is the float32 score, rounded."""
    bench = bench_of(context)
    left, right = bench.tile(tile.rows, seekers=True), bench.tile(tile.columns)
    scores = np.empty((len(left), len(right)), dtype=dtype)
    bench.engine.scores(left, right, scores)
    return scores

"""Cells of similar rows: their centroids, trained on a sample, and which of them are the nearest to a row.

What flows in are tiles of rows and the engine of this process; what flows out are numbers of cells. The engine is an
exact one, so a row has the same cells whoever asks: no result depends on how a product was summed.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.keys import INDEX_BITS
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows, prepare
from raysm.workloads.similarity.engines import Best, Engine, Frame, PreparedTile

__all__ = ["Comparer", "cell_count", "float_type", "train"]

CELLS_A_ROOT = 4
"""Cells are so many times the square root of the rows: looking for the nearest cells, and in them, then costs alike.

Of 63,666 embeddings of 384 columns, a recall of 0.95 took 34 % of all pairs with 64 cells, 20 % with 256 and 12 % with
512: many small cells leave more out. Of still smaller ones a tile is so small that preparing it is all of the work."""

LEAST_MEMBERS = 8
"""Rows of a cell, in the mean, at least."""

SAMPLE_A_CELL = 64
"""Rows that a centroid is trained on, in the mean; half as many move it by less than the data's own noise."""

ROUNDS = 6
"""Of training. More than these moved the recall of real embeddings by less than a tenth of a percent."""


def cell_count(rows: int, sampled: int) -> int:
    """Return how many cells rows like these are cut into, of which so many are trained on."""
    return max(1, min(math.isqrt(rows * CELLS_A_ROOT**2), rows // LEAST_MEMBERS, sampled // LEAST_MEMBERS))


def float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of centroids beside rows of ``dtype``: the one that engines read such rows as."""
    if dtype.kind == "f":
        return dtype
    # As the compiled engines widen integers: two sides of a product have to be of one type.
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


@dataclass(frozen=True, slots=True)
class Comparer:
    """An engine, and the frame in which it sees rows and centroids."""

    engine: Engine[Any]
    frame: Frame
    """Never ``integral``: a centroid is a mean, and an engine that trusts its product to be exact would be wrong."""
    step: int
    """Rows that are made ready at once."""

    def ready(self, tile: Tile) -> PreparedTile[Any]:
        """Make a tile ready."""
        return self.engine.prepare(tile, self.frame)

    def nearest(self, rows: PreparedTile[Any], centroids: Rows, count: int) -> NDArray[np.int64]:
        """Return cells[n, count], each row's nearest first; of a zero row, which is near to nobody, the first ones."""
        cells, best = tile_of(centroids), Best.empty(rows.tile.norms, count)
        for start in range(0, len(cells), self.step):
            self.engine.topk(rows, self.ready(cells.part(start, start + self.step)), best, None, same=False)
        # Nobody was looked for: the keys are empty, and would name a cell that there is not.
        best.keys[rows.tile.norms == 0] = np.arange(count, dtype=np.uint64)
        return (best.keys & INDEX_BITS).astype(np.int64)


def tile_of(rows: Rows) -> Tile:
    """Return rows of no matrix as a tile of their own."""
    return Tile(start=0, rows=rows, norms=prepare(rows).norms)


def train(sample: Tile, count: int, comparer: Comparer, seed: int = 0) -> Rows:
    """Return centroids[count, D] of the sample's rows, by their cosine: each the mean direction of its cell.

    Args:
        sample: Rows of the matrix, in an order that means nothing, some for each cell.
        count: How many, at most as many as the sample has rows.
        comparer: Compares rows with centroids.
        seed: Of the first centroids: the same request trains the same ones again.
    """
    centroids = _trained(sample, count, comparer, seed)
    # Similar cells beside each other: the rows of one task then look into few, each made ready once.
    groups = _trained(tile_of(centroids), max(1, math.isqrt(count)), comparer, seed)
    return centroids[np.argsort(_cells(tile_of(centroids), groups, comparer), kind="stable")]


def _trained(sample: Tile, count: int, comparer: Comparer, seed: int) -> Rows:
    dtype = float_type(sample.rows.dtype)
    inverse = np.divide(1.0, sample.norms, out=np.zeros(len(sample)), where=sample.norms != 0)
    # By their cosine: a long row would else draw its centroid to itself.
    unit = (sample.rows * inverse[:, None]).astype(np.float32)
    rng = np.random.default_rng(seed)
    centroids = unit[rng.choice(len(unit), count, replace=False)].astype(dtype)
    for _ in range(ROUNDS):
        centroids = _means(unit, _cells(sample, centroids, comparer), centroids)
    return centroids


def _cells(sample: Tile, centroids: Rows, comparer: Comparer) -> NDArray[np.int64]:
    # Made ready anew in each round: kept, all parts of a sample would take half as much memory again.
    starts = range(0, len(sample), comparer.step)
    parts = (comparer.ready(sample.part(start, start + comparer.step)) for start in starts)
    return np.concatenate([comparer.nearest(part, centroids, 1)[:, 0] for part in parts])


def _means(unit: NDArray[np.float32], cells: NDArray[np.int64], centroids: Rows) -> Rows:
    """Return each cell's sum of unit rows, whose direction is their mean's; a cell that has no row stays."""
    order = np.argsort(cells, kind="stable")
    edges = np.searchsorted(cells[order], np.arange(len(centroids) + 1))
    moved = centroids.copy()
    # One cell at a time: gathered all at once, the sample would be in memory twice.
    for cell in np.flatnonzero(np.diff(edges)).tolist():
        moved[cell] = unit[order[edges[cell] : edges[cell + 1]]].sum(axis=0, dtype=np.float64)
    return moved

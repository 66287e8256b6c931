"""Tight clusters of rows: centres about which their differences are as large as those of other rows.

They are found by some rows of the matrix, spread evenly, are the same for all tasks, and decide the speed alone. About
the mean of all rows, what a product of integers loses is more than the scores of a tight cluster differ by, and every
pair of it would be scored in float64: of 50,000 rows in two clusters, 625 million.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.score import Tile

SAMPLE_ROWS = 1024
"""Most rows that are looked at. A cluster that has few of them is a small share of the matrix, and costs little as it
is."""

SAMPLE_BYTES = 8 << 20
"""Most that they take as float32: all of them come to the head."""

LEAST_ROWS = 4
"""Fewest rows of a cluster, among those that are looked at."""

MOST_CLUSTERS = 64
"""Every row is compared with all centres: of more, even that would show."""

SCALES = 4.0 ** np.arange(-9, -1)
"""Squared distances within a cluster, relative to the mean one from the matrix's centre, the tightest first.

Smaller ones come near what float32 products of the rows are wrong by: with them, clusters fell apart."""

WHOLE = 1.25
"""A cluster is whole at a scale if within twice that distance there are at most so many times the rows."""

NEAREST_ELEMENTS = 1 << 17
"""Elements of the rows that are compared with all centres at once: their copies stay in the second-level cache."""

LEAST_PAIRS = 1 / 256
"""Share of all pairs that are of one cluster, below which their scores cost less than what tells them apart."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TightClusters:
    """The tight clusters of a matrix, at least one."""

    centres: NDArray[np.float64]
    """centres[K, D]."""
    radii: NDArray[np.float64]
    """radii[K]: a row, over its norm, that is farther from the centre is not of the cluster."""

    def __len__(self) -> int:
        """K."""
        return len(self.radii)

    def nearest(self, tile: Tile, centre: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return places[n] of a tile's rows: the nearest of the centres, -1 where ``centre`` itself is nearer."""
        # Of y = u - centre and such differences: |y|**2 - |y - offset|**2, which float32 tells well enough.
        offsets = self.centres - centre
        across = np.ascontiguousarray(offsets.T, dtype=np.float32)
        less = (offsets @ centre + np.einsum("kd,kd->k", offsets, offsets) / 2).astype(np.float32)
        places = np.empty(len(tile), dtype=np.int32)
        # A few at a time: of all rows, the copies in float64 would come from memory, and take three times as long.
        step = max(1, NEAREST_ELEMENTS // len(centre))
        for start in range(0, len(tile), step):
            gains = _unit_products(tile.part(start, start + step), across) - less
            nearest = gains.argmax(axis=1)
            gained = np.take_along_axis(gains, nearest[:, None], axis=1)[:, 0] > 0
            places[start : start + step] = np.where(gained, nearest, -1)
        places[tile.norms == 0] = -1
        return places


def sample_stride(rows: int, columns: int) -> int:
    """Return of how many rows of a matrix one is looked at."""
    return math.ceil(rows / max(1, min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * columns))))


def unit_rows(tile: Tile) -> NDArray[np.float32]:
    """Return the rows[n, D] divided by their norms; zero rows stay zeros."""
    inverse = np.divide(1.0, tile.norms, out=np.zeros(len(tile)), where=tile.norms != 0)
    # By way of float64: rows may have elements, and norms, that float32 cannot hold.
    units: NDArray[np.float32] = np.multiply(tile.rows, inverse[:, None], dtype=np.float64).astype(np.float32)
    return units


def _unit_products(tile: Tile, across: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the products[n, K] of the rows, divided by their norms, with across[D, K]."""
    least, most = tile.norms.min(initial=1), tile.norms.max(initial=1)
    if tile.rows.dtype != np.float32 or least < 2.0**-60 or most > 2.0**60:
        return unit_rows(tile) @ across
    # The division afterwards, of K numbers and not of D: it was half of the work.
    return (tile.rows @ across) * (1 / tile.norms[:, None]).astype(np.float32)


def find_clusters(units: NDArray[np.float32], centre: NDArray[np.float64]) -> TightClusters | None:
    """Return the tight clusters that pay, by some rows of a matrix; None where none does.

    Args:
        units: rows[n, D] divided by their norms, with zero rows.
        centre: The matrix's.
    """
    units = units[units.any(axis=1)]
    # Not of the units: where all are nearly alike, their differences would be lost in float32.
    y = units - centre
    lengths = np.einsum("nd,nd->n", y, y)
    if len(units) < LEAST_ROWS or not lengths.any():
        return None
    spread = float(lengths.mean())
    single = (y / np.sqrt(spread)).astype(np.float32)
    squares = np.einsum("nd,nd->n", single, single)
    distances = squares[:, None] + squares - 2 * (single @ single.T)
    enough = LEAST_PAIRS * len(units) ** 2
    # First the one test that nearly every matrix fails: a small run takes hardly longer than this would.
    if np.count_nonzero(distances <= SCALES[-1]) - len(units) < enough:
        return None
    clusters = _members(distances)
    if sum(len(rows) ** 2 for rows in clusters) < enough:
        return None
    centres = np.stack([units[rows].mean(axis=0, dtype=np.float64) for rows in clusters])
    farthest = [np.linalg.norm(units[rows] - mean, axis=1).max() for rows, mean in zip(clusters, centres, strict=True)]
    # Twice as far as those that were looked at: among the others there are some that are farther.
    return TightClusters(centres=centres, radii=2 * np.array(farthest))


def _members(distances: NDArray[np.float32]) -> list[NDArray[np.int64]]:
    """Return the rows of each cluster, of squared distances[n, n]; the tightest first."""
    clusters: list[NDArray[np.int64]] = []
    free = np.ones(len(distances), dtype=bool)
    for scale in SCALES:
        near, around = distances <= scale, distances <= 4 * scale
        whole = np.count_nonzero(around, axis=1) <= WHOLE * np.count_nonzero(near, axis=1)
        if scale == SCALES[-1]:
            # There is no wider one at which they would be whole: they are taken as they are.
            around, whole = near, np.ones_like(whole)
        while len(clusters) < MOST_CLUSTERS:
            sizes = np.where(free & whole, np.count_nonzero(near & free, axis=1), 0)
            leader = int(sizes.argmax())
            if sizes[leader] < LEAST_ROWS:
                break
            # With those around: the scale may lie within what a cluster's distances differ by.
            clusters.append(np.flatnonzero(around[leader] & free))
            free[clusters[-1]] = False
    return clusters

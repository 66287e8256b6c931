"""Tight clusters of rows, with centres about which integers can tell their rows apart.

About the mean of all rows, the error of a product of integers is larger than the differences
between the scores of a tight cluster. So every pair of the cluster would be scored in float64: 625
million pairs for 50,000 rows in two clusters. The clusters are found from some rows of the matrix,
spread evenly. They are the same for all tasks, and affect only the speed.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.features.similarity.cluster.arithmetic.score import Tile

SAMPLE_ROWS = 1024
"""Most rows of the sample. A cluster with few rows in the sample is a small share of the matrix,
and costs little."""

SAMPLE_BYTES = 8 << 20
"""Most bytes of the sample as float32: all of it is sent to the head."""

MIN_ROWS = 4
MAX_CLUSTERS = 64
"""Most clusters: every row is compared with all centres, which would take time with more."""

SCALES = 4.0 ** np.arange(-9, -1)
"""Squared distances within a cluster, relative to the mean one from the matrix's centre, the
tightest first.

Smaller scales come near the error of float32 products of the rows: with them, clusters fell
apart."""

WHOLE = 1.25
"""A cluster is whole at a scale if at most this many times as many rows are within twice the
distance."""

NEAREST_ELEMENTS = 1 << 17
"""Elements of the rows that are compared with all centres at once: their copies stay in the
second-level cache."""

MIN_PAIRS = 1 / 256
"""Least share of pairs within clusters among all pairs: below it, scoring them costs less than a
second product."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TightClusters:
    centres: NDArray[np.float64]
    radii: NDArray[np.float64]
    """radii[K]: largest distance from the centre of a row of the cluster, divided by its norm."""

    def __len__(self) -> int:
        return len(self.radii)

    def nearest(self, tile: Tile, centre: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return places[n] of a tile's rows: the nearest centre, or -1 if ``centre`` is nearer."""
        # With y = u - centre, compare |y|**2 - |y - offset|**2, for which float32 is precise
        # enough.
        offsets = self.centres - centre
        across = np.ascontiguousarray(offsets.T, dtype=np.float32)
        less = (offsets @ centre + np.einsum("kd,kd->k", offsets, offsets) / 2).astype(np.float32)
        places = np.empty(len(tile), dtype=np.int32)
        # A few rows at a time, so that their float64 copies stay in the cache: all at once took
        # three times as long.
        step = max(1, NEAREST_ELEMENTS // len(centre))
        for start in range(0, len(tile), step):
            gains = _unit_products(tile.part(start, start + step), across) - less
            nearest = gains.argmax(axis=1)
            gained = np.take_along_axis(gains, nearest[:, None], axis=1)[:, 0] > 0
            places[start : start + step] = np.where(gained, nearest, -1)
        places[tile.norms == 0] = -1
        return places


def sample_stride(rows: int, columns: int) -> int:
    """Return the stride of the sample: it has one of so many rows of a matrix."""
    return math.ceil(rows / max(1, min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * columns))))


def unit_rows(tile: Tile) -> NDArray[np.float32]:
    inverse = np.divide(1.0, tile.norms, out=np.zeros(len(tile)), where=tile.norms != 0)
    # Computed in float64, because rows may have elements and norms that float32 cannot hold.
    units: NDArray[np.float32] = np.multiply(tile.rows, inverse[:, None], dtype=np.float64).astype(
        np.float32
    )
    return units


def _unit_products(tile: Tile, across: NDArray[np.float32]) -> NDArray[np.float32]:
    least = tile.norms.min(initial=1)
    most = tile.norms.max(initial=1)
    if tile.rows.dtype != np.float32 or least < 2.0**-60 or most > 2.0**60:
        return unit_rows(tile) @ across
    # Divide the K products instead of the D elements, which was half of the work.
    return (tile.rows @ across) * (1 / tile.norms[:, None]).astype(np.float32)


def find_clusters(units: NDArray[np.float32], centre: NDArray[np.float64]) -> TightClusters | None:
    """Find tight clusters that pay among some unit rows[n, D] of a matrix.

    Return None if there are none.
    """
    units = units[units.any(axis=1)]
    # Subtract the centre first: float32 would lose the differences between units that are nearly
    # alike.
    y = units - centre
    lengths = np.einsum("nd,nd->n", y, y)
    if len(units) < MIN_ROWS or not lengths.any():
        return None
    spread = float(lengths.mean())
    single = (y / np.sqrt(spread)).astype(np.float32)
    squares = np.einsum("nd,nd->n", single, single)
    distances = squares[:, None] + squares - 2 * (single @ single.T)
    enough = MIN_PAIRS * len(units) ** 2
    # Test this first, because nearly every matrix fails it: for a small run the rest would take
    # noticeable time.
    if np.count_nonzero(distances <= SCALES[-1]) - len(units) < enough:
        return None
    clusters = _members(distances)
    if sum(len(rows) ** 2 for rows in clusters) < enough:
        return None
    centres = np.stack([units[rows].mean(axis=0, dtype=np.float64) for rows in clusters])
    farthest = [
        np.linalg.norm(units[rows] - mean, axis=1).max()
        for rows, mean in zip(clusters, centres, strict=True)
    ]
    # Double the sample's distances, because rows outside the sample may be farther away.
    return TightClusters(centres=centres, radii=2 * np.array(farthest))


def _members(distances: NDArray[np.float32]) -> list[NDArray[np.int64]]:
    """Return the rows of each cluster, given squared distances[n, n]; the tightest first."""
    clusters: list[NDArray[np.int64]] = []
    free = np.ones(len(distances), dtype=bool)
    for scale in SCALES:
        near = distances <= scale
        around = distances <= 4 * scale
        whole = np.count_nonzero(around, axis=1) <= WHOLE * np.count_nonzero(near, axis=1)
        if scale == SCALES[-1]:
            # At the widest scale, clusters need not be whole.
            around = near
            whole = np.ones_like(whole)
        while len(clusters) < MAX_CLUSTERS:
            sizes = np.where(free & whole, np.count_nonzero(near & free, axis=1), 0)
            leader = int(sizes.argmax())
            if sizes[leader] < MIN_ROWS:
                break
            # Include the rows within twice the distance: the cluster may be somewhat larger than
            # the scale.
            clusters.append(np.flatnonzero(around[leader] & free))
            free[clusters[-1]] = False
    return clusters

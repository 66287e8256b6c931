"""The protocol of engines: an engine compares two tiles, fast, and answers as ``score`` defines.

An engine uses cheap products, with a proven bound on their error, to find the pairs that may be
among the answers, and scores those by the definition. So every engine gives the same answers, bit
for bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from raysm.features.similarity.cluster.arithmetic.keys import EMPTY_KEY, decode
from raysm.features.similarity.cluster.arithmetic.score import Tile
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseTile
from raysm.features.similarity.cluster.arithmetic.tight_clusters import TightClusters

T = TypeVar("T", Tile, SparseTile)


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """The origin about which all tiles of a matrix are multiplied.

    It affects the speed, never the answer.
    """

    centre: NDArray[np.float64]
    """centre[D]: approximately the mean of all rows divided by their norms; zeros are allowed."""
    clusters: TightClusters | None = None

    @classmethod
    def plain(cls, columns: int) -> "Frame":
        """Return the frame that takes rows of that many columns as they are."""
        return cls(centre=np.zeros(columns))


def unit_sum(tile: Tile) -> NDArray[np.float64]:
    """Return sum[D] of the tile's rows divided by their norms.

    The sums of all tiles over N are ``Frame.centre``.
    """
    # A zero row has no direction, and adds nothing to the mean.
    inverse = np.divide(1.0, tile.norms, out=np.zeros(len(tile)), where=tile.norms != 0)
    total = np.zeros(tile.rows.shape[1])
    # In steps, because all rows as float64 would take several times the tile's memory.
    step = max(1, (1 << 20) // len(total))
    for start in range(0, len(tile), step):
        total += inverse[start : start + step] @ tile.rows[start : start + step].astype(np.float64)
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedTile(Generic[T]):
    """A tile that is prepared once for many products. Only the engine that made it can use it."""

    tile: T
    prepared: Any
    nbytes: int

    def __len__(self) -> int:
        return len(self.tile)


DenseSide: TypeAlias = PreparedTile[Tile]
SparseSide: TypeAlias = PreparedTile[SparseTile]


@dataclass(frozen=True, slots=True)
class Best:
    """The best k found so far of each row of a tile; engines write into it."""

    keys: NDArray[np.uint64]
    """keys[n, k], each row's best first, padded with ``EMPTY_KEY``."""
    lower_bounds: NDArray[np.float32]
    """lower_bounds[n]: scores from other tiles that row i's k-th best reaches; lower scores need
    not be kept.

    -inf if nothing is known, +inf for rows that look for no neighbors."""

    @classmethod
    def empty(
        cls, norms: NDArray[np.float64], k: int, lower_bounds: NDArray[np.float32] | None = None
    ) -> "Best":
        """Return a best without any keys.

        Zero rows look for none, as theirs are always the lowest indices.
        """
        bounds = (
            np.full(len(norms), -np.inf, dtype=np.float32)
            if lower_bounds is None
            else lower_bounds.astype(np.float32)
        )
        # This changes only the copy that astype made.
        bounds[norms == 0] = np.inf
        return cls(np.full((len(norms), k), EMPTY_KEY, dtype=np.uint64), bounds)

    def lowest(self) -> NDArray[np.float32]:
        """Return scores[n] that each row's k-th best reaches.

        It is the higher of the k-th key's score and ``lower_bounds``.
        """
        return np.maximum(decode(self.keys[:, -1])[0], self.lower_bounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Pairs of one tile, sorted by row, then by neighbor."""

    offsets: NDArray[np.int64]
    """offsets[rows + 1]: the pairs of the tile's row i are offsets[i] to offsets[i + 1]."""
    neighbors: NDArray[np.uint32]
    """neighbors[n], numbers of rows of the matrix."""
    similarities: NDArray[np.float32]

    @classmethod
    def of(cls, parts: Iterable[tuple[NDArray[Any], ...]], count: int) -> "Pairs":
        """Sort and join rows, counted from the tile's first of ``count``, with their neighbors."""
        none = (np.empty(0, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32))
        rows, neighbors, similarities = (
            np.concatenate(columns) for columns in zip(none, *parts, strict=True)
        )
        order = pair_order(rows, neighbors)
        return cls(
            offsets=np.searchsorted(rows[order], np.arange(count + 1)).astype(np.int64),
            neighbors=neighbors[order].astype(np.uint32),
            similarities=similarities[order],
        )


def pair_order(rows: NDArray[Any], neighbors: NDArray[Any]) -> NDArray[np.int64]:
    keys = (rows.astype(np.uint64) << np.uint64(32)) | neighbors.astype(np.uint64)
    # The stable sort is fast for parts that are sorted already: it merges runs.
    return np.argsort(keys, kind="stable")


class Engine(Protocol[T]):
    """Compares tiles, both of dense rows or both of sparse ones.

    One thread of one process uses it at a time.
    """

    @property
    def name(self) -> str:
        """The engine's name in the manifest: the type and instructions that it computes with."""
        ...

    def prepare(self, tile: T, frame: Frame) -> PreparedTile[T]:
        """Prepare a tile for products; the result keeps the tile's rows, to score pairs."""
        ...

    def topk(
        self,
        left: PreparedTile[T],
        right: PreparedTile[T],
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        """Compare every row of ``left`` with every row of ``right``, and keep the best of each row.

        Args:
            left: n rows.
            right: m rows.
            best_left: The best of the left rows, which the engine updates.
            best_right: The best of the right rows, which the engine updates; None: only the left
                rows look for neighbors.
            same: True if both are rows of one matrix, so that no row is its own neighbor. The two
                ranges then have no row in common, or are the same with ``best_right is best_left``,
                or ``best_right`` is None.

        No pair may be offered to a ``Best`` twice.
        """
        ...

    def pairs(
        self, left: PreparedTile[T], right: PreparedTile[T], threshold: np.float32, *, same: bool
    ) -> Pairs:
        """Return the pairs with a score of at least ``threshold``.

        With ``same``, return only those with row < neighbor.
        """
        ...

    def scores(self, left: T, right: T, out: NDArray[Any]) -> None:
        """Write the scores of all rows into out[n, m], float32, or float16 rounded from it."""
        ...

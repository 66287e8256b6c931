"""What every task of the similarity is told once, and how it comes to the rows of its own instance.

**Memory of a task**, beside the mapped matrix, whatever the data: the rows of its block and of one tile of columns,
as float32 (``TILE_BYTES`` at most, each), one product of the two (``PRODUCT_ENTRIES`` float32 and as many bools), the
pairs that survived (at most ``CROWDED`` of these entries), and its result. Where a tile is decided in float64, it is
by ``WIDE_ENTRIES`` at a time: their rows and products in float64, twice where absolute values are needed.
"""

import functools
import math
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raysm.bootstrap import environment
from raysm.errors import InvalidInput
from raysm.workloads.similarity.matrix import Matrix, open_matrix
from raysm.workloads.similarity.products import Tile
from raysm.workloads.similarity.score import scaled

__all__ = ["Context", "Place", "Source", "peak_memory_bytes", "tile_rows", "wide_parts"]

TILE_BYTES = 32 << 20
"""Largest float32 copy of a tile's rows."""

PRODUCT_ENTRIES = 1 << 22
"""Largest product of one go."""

WIDE_ENTRIES = 1 << 20
"""Largest product in float64."""

MAX_TILE_ROWS = 4096


def tile_rows(columns: int, most: int = MAX_TILE_ROWS) -> int:
    """Return how many rows of that many columns make one tile: at least 1, at most ``most``."""
    return max(1, min(most, TILE_BYTES // (4 * columns)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where one instance has the matrix, and room of its own."""

    channel: Path
    """The file, or folder of files."""
    scratch: Path
    """Folder for what has to be converted."""
    host: str
    """The instance's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The matrix, as every task finds it on its own instance."""

    channel: str
    """Name of the channel."""
    id_column: str | None = None
    """Column that names the rows."""
    place: Place | None = None
    """Where it lies; None asks the instance's own environment, which is what jobs do."""

    def here(self) -> Place:
        """Return where this instance has it."""
        if self.place is not None:
            return self.place
        found = environment.read()
        return Place(found.paths.channel(self.channel), found.paths.scratch / self.channel, found.current_host)

    def open(self) -> Matrix:
        """Map the matrix of this instance; a process maps it once."""
        return _open(self.here(), self.id_column)


@functools.lru_cache(maxsize=1)
def _open(place: Place, id_column: str | None) -> Matrix:
    return open_matrix(place.channel, place.scratch, id_column)


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What is the same for all tasks; shipped once."""

    source: Source
    """Where the rows are."""
    rows: int
    """N."""
    columns: int
    """D."""
    norms: NDArray[np.float64]
    """norms[N]; empty while they are being computed."""
    exponents: NDArray[np.int16]
    """exponents[N], see ``score``; empty where all are 0."""
    whole: bool = False
    """All elements of the matrix are integers."""

    def open(self) -> Matrix:
        """Map this instance's matrix, and check that it is the one that the head has.

        Raises:
            InvalidInput: It has another shape.
        """
        matrix = self.source.open()
        if (matrix.rows, matrix.columns) != (self.rows, self.columns):
            place = self.source.here()
            raise InvalidInput(
                f"the matrix on {place.host} has the shape ({matrix.rows}, {matrix.columns}), on the head "
                f"({self.rows}, {self.columns}); every instance needs the whole matrix (FullyReplicated)"
            )
        return matrix

    def tile(self, matrix: Matrix, start: int, stop: int) -> Tile:
        """Read rows start to stop."""
        rows = matrix.read(start, stop)
        if len(self.exponents):
            rows = scaled(rows, self.exponents[start:stop])
        return Tile(start=start, rows=rows, norms=self.norms[start:stop])


def wide_parts(left: Tile, right: Tile) -> Iterator[tuple[Tile, Tile]]:
    """Cut two tiles into pairs of tiles whose product in float64, and whose rows in float64, are small enough."""
    step = tile_rows(2 * left.rows.shape[1], math.isqrt(WIDE_ENTRIES))
    for i in range(0, len(left), step):
        for j in range(0, len(right), step):
            yield left.part(i, i + step), right.part(j, j + step)


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held, mapped pages of the matrix among it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

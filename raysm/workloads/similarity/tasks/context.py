"""What every task of the similarity is told once, and how it comes to the rows of its own instance."""

import functools
import resource
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from raysm.bootstrap import environment
from raysm.errors import InvalidInput
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows, scaled
from raysm.workloads.similarity.engines import CUDA, Frame
from raysm.workloads.similarity.reading.matrix import Matrix, open_matrix

__all__ = ["Context", "Place", "Source", "peak_memory_bytes", "tile_rows"]

TILE_BYTES = 32 << 20
"""Largest float32 copy of a tile's rows."""

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
    sharded: bool = False
    """Each instance has its share of the files alone."""
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


@functools.lru_cache(maxsize=2)
def _open(place: Place, id_column: str | None) -> Matrix:
    return open_matrix(place.channel, place.scratch, id_column)


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What is known of a matrix, and the same for all tasks; shipped once."""

    source: Source
    """Where the rows are."""
    rows: int
    """N."""
    columns: int
    """D."""
    dtype: np.dtype[Any]
    """Type that the rows are read as: that of all rows that they are compared with."""
    norms: NDArray[np.float64]
    """norms[N]; empty while they are being computed."""
    exponents: NDArray[np.int16]
    """exponents[N], see ``score``; empty where all are 0."""
    whole: bool = False
    """All elements of the matrix are integers."""
    centre: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """centre[D] about which engines may quantise, see ``Frame``; empty is the origin."""
    queries: "Context | None" = None
    """The matrix whose rows look for neighbors in this one; None: its own rows do."""
    sparse: bool = False
    """Rows are read, and compared, by their elements: the files are CSR, and sparse enough."""
    engine: str | None = None
    """A word of the name of the engine that is to compute; None lets a probe choose."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Names this context: what a process keeps from one task to the next is for tasks of the same."""

    @property
    def on_gpus(self) -> bool:
        """Whether each task has a GPU."""
        return self.engine is not None and self.engine.lower() == CUDA

    @property
    def seekers(self) -> "Context":
        """The matrix whose rows look for neighbors."""
        return self.queries or self

    @property
    def same(self) -> bool:
        """Whether the rows look for neighbors among themselves."""
        return self.queries is None

    def frame(self) -> Frame:
        """Return what engines see both matrices in."""
        centre = self.centre if len(self.centre) else np.zeros(self.columns)
        return Frame(centre=centre, whole=self.whole and self.seekers.whole)

    def open(self) -> Matrix:
        """Map this instance's matrix, to be read as ``dtype``, and check that it is the one that the head has.

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
        return matrix.as_type(self.dtype)

    def sample(self, rows: int) -> Tile:
        """Return some rows that can be read here, at most so many."""
        return self.tile(self.open(), 0, min(rows, self.rows))

    def tile(self, matrix: Matrix, start: int, stop: int) -> Tile:
        """Read rows start to stop."""
        exponents = self.exponents[start:stop]
        if self.sparse:
            # The engine that is chosen for such rows takes them as they are.
            rows = cast(Rows, matrix.read_sparse(start, stop).scaled(exponents))
        else:
            rows = scaled(matrix.read(start, stop), exponents) if len(exponents) else matrix.read(start, stop)
        return Tile(start=start, rows=rows, norms=self.norms[start:stop])


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held, mapped pages of the matrix among it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

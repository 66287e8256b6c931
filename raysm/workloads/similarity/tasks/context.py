"""What every task of the similarity is told once, and how it reads the rows that it compares.

A process can read the rows that its instance has, and those of one chunk that came from another instance. Tasks know
rows by their places (see ``arithmetic.row_order``). Before the rows are prepared there is a ``RowShape``, afterwards a
``Context``.
"""

import functools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows, scaled
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows, SparseTile
from raysm.workloads.similarity.arithmetic.tight_clusters import TightClusters
from raysm.workloads.similarity.engines import Frame
from raysm.workloads.similarity.reading.matrix import Matrix
from raysm.workloads.similarity.reading.source import Place, Source

__all__ = ["Context", "Operand", "Placement", "ResidentRows", "RowShape", "Shares", "Whole", "tile_rows"]


class ResidentRows:
    """Rows by their places, as far as tasks read a ``Matrix``."""

    def __init__(self, matrix: Matrix | None, start: int) -> None:
        """Start with the instance's own rows, which lie from ``start`` on; None: it has none."""
        self._held = [] if matrix is None else [(start, matrix)]
        self._remote: list[tuple[int, Matrix]] = []

    def load_remote(self, start: int, rows: Matrix | None) -> None:
        """Take in a remote chunk, whose rows lie from ``start`` on; the one before it is dropped. None: no other."""
        # The one before is dropped: held, it would keep its room in the object store.
        self._remote = [] if rows is None else [(start, rows)]

    def holds(self, block: RowBlock) -> bool:
        """Whether these rows can be read."""
        return self._find(block.start, block.stop) is not None

    def some(self, rows: int) -> RowBlock | None:
        """Return where some rows lie that can be read, its own rather than remote ones; None: there are none."""
        for start, matrix in (*self._held, *self._remote):
            return RowBlock(start, start + min(rows, matrix.rows))
        return None

    def read(self, start: int, stop: int) -> Rows:
        """Return rows[stop - start, D].

        Raises:
            InvalidInput: They are not here.
        """
        begin, matrix = self._holding(start, stop)
        return matrix.read(start - begin, stop - begin)

    def read_sparse(self, start: int, stop: int) -> SparseRows:
        """Return the same rows by their elements."""
        begin, matrix = self._holding(start, stop)
        return matrix.read_sparse(start - begin, stop - begin)

    def _find(self, start: int, stop: int) -> tuple[int, Matrix] | None:
        for begin, matrix in (*self._held, *self._remote):
            if begin <= start and stop <= begin + matrix.rows:
                return begin, matrix
        return None

    def _holding(self, start: int, stop: int) -> tuple[int, Matrix]:
        holding = self._find(start, stop)
        if holding is None:
            raise InvalidInput(
                f"the rows at the places {start} to {stop - 1} are not on this instance; its files changed while the "
                "job ran: start it again"
            )
        return holding


TILE_BYTES = 32 << 20
"""Largest float32 copy of a tile's rows."""

MAX_TILE_ROWS = 4096


def tile_rows(columns: int, most: int = MAX_TILE_ROWS) -> int:
    """Return how many rows of that many columns make one tile: at least 1, at most ``most``."""
    return max(1, min(most, TILE_BYTES // (4 * columns)))


class Placement(Protocol):
    """Which rows each instance has."""

    def rows_on(self, host: str) -> RowBlock:
        """Return the places of an instance's own rows; an empty range where it has none."""
        ...

    def check(self, matrix: Matrix | None, host: str) -> None:
        """Raise ``InvalidInput`` where an instance has other rows than the head knows of."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Every instance has all rows (FullyReplicated)."""

    rows: int
    columns: int

    def rows_on(self, host: str) -> RowBlock:
        """Return all rows."""
        return RowBlock(0, self.rows)

    def check(self, matrix: Matrix | None, host: str) -> None:
        """Raise ``InvalidInput`` where this instance's matrix has another shape than the head's."""
        shape = (0, 0) if matrix is None else (matrix.rows, matrix.columns)
        if shape != (self.rows, self.columns):
            raise InvalidInput(
                f"the matrix on {host} has the shape {shape}, on the head ({self.rows}, {self.columns}); every "
                "instance needs the whole matrix (FullyReplicated)"
            )


@dataclass(frozen=True, slots=True)
class Shares:
    """Each instance has its own share of the rows (ShardedByS3Key)."""

    ranges: Mapping[str, RowBlock]
    """By instance, the places of its rows."""

    def rows_on(self, host: str) -> RowBlock:
        """Return the places of its share."""
        return self.ranges.get(host, RowBlock(0, 0))

    def check(self, matrix: Matrix | None, host: str) -> None:
        """Raise ``InvalidInput`` where this instance has another number of rows than it reported."""
        rows, reported = 0 if matrix is None else matrix.rows, self.rows_on(host).rows
        if rows != reported:
            raise InvalidInput(f"{host} has {rows} rows, and had {reported}: its files changed while the job ran")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowShape:
    """What is known of the rows of one channel before any of them is read."""

    source: Source
    """Where the rows are."""
    rows: int
    """N."""
    columns: int
    """D."""
    dtype: np.dtype[Any]
    """Type that the rows are read as: that of all rows that they are compared with."""
    placement: Placement
    """Which of them each instance has."""
    sparse: bool = False
    """Rows are read, and compared, by their elements: the files are CSR, and sparse enough."""

    def open(self) -> ResidentRows:
        """Return what this process can read of them; a process has them once.

        Raises:
            InvalidInput: The instance has not the rows that the head knows of.
        """
        place = self.source.here()
        there = self.placement.rows_on(place.host)
        own = self.source.open(place) if there.rows or self.source.has_files() else None
        self.placement.check(own, place.host)
        # The place is part of what decides: a process of a test may be several instances, one after the other.
        return _resident(self.source, place, there.start, self.dtype, empty=not there.rows)

    def prepared(self, norms: NDArray[np.float64], exponents: NDArray[np.int16], **facts: Any) -> "Operand":
        """Return the same rows with what was learned of them."""
        # Not ``dataclasses.asdict``, which would turn the source and the placement into dicts as well.
        shape = {name: getattr(self, name) for name in RowShape.__slots__}
        return Operand(**shape, norms=norms, exponents=exponents, **facts)


# Outside of the value, of which each task may bring another copy: a process has the rows once.
# The matrix and the queries, of this context and, while a process goes over to the next one, of the last.
@functools.lru_cache(maxsize=4)
def _resident(source: Source, place: Place, start: int, dtype: np.dtype[Any], *, empty: bool) -> ResidentRows:
    return ResidentRows(None if empty else source.open(place).as_type(dtype), start)


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand(RowShape):
    """Rows of one channel that are ready to be compared: what is known of them all, by their places."""

    norms: NDArray[np.float64]
    """norms[N]."""
    exponents: NDArray[np.int16]
    """exponents[N], see ``score``; empty where all are 0."""
    integral: bool = False
    """All elements are integers."""
    centre: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """centre[D] about which engines may quantise, see ``Frame``; empty is the origin."""
    clusters: TightClusters | None = None
    """Where many rows stand close together, see ``Frame``."""

    def tile(self, start: int, stop: int) -> Tile | SparseTile:
        """Read the rows at places start to stop."""
        resident, exponents = self.open(), self.exponents[start:stop]
        if self.sparse:
            # The engine that is chosen for such rows takes them as they are.
            sparse = resident.read_sparse(start, stop).scaled(exponents)
            return SparseTile(start=start, rows=sparse, norms=self.norms[start:stop])
        rows = resident.read(start, stop)
        # Else they stay views of the mapped file, which take no memory of the task's own.
        rows = scaled(rows, exponents) if len(exponents) else rows
        return Tile(start=start, rows=rows, norms=self.norms[start:stop])


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What is the same for all tasks of one run; shipped once."""

    matrix: Operand
    """The rows among which neighbors are looked for."""
    other_queries: Operand | None = None
    """The rows that look for them; None: the matrix's own do."""
    engine: str | None = None
    """A word of the name of the engine that is to compute; None lets a probe choose."""
    operand_rows: int | None = None
    """Most rows that a task makes ready at once: a larger tile is done in several cuts; None sets no limit."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Names this context: what a process keeps from one task to the next is for tasks of the same."""

    @property
    def queries(self) -> Operand:
        """The rows that look for neighbors."""
        return self.other_queries or self.matrix

    @property
    def self_join(self) -> bool:
        """Whether the rows look for neighbors among themselves."""
        return self.other_queries is None

    @property
    def host(self) -> str:
        """The instance of this process."""
        return self.matrix.source.here().host

    def frame(self) -> Frame:
        """Return what engines see both matrices in."""
        centre = self.matrix.centre if len(self.matrix.centre) else np.zeros(self.matrix.columns)
        # Of both: a product of an integer with another number is rounded, and an engine that trusts it would be wrong.
        return Frame(
            centre=centre,
            integral=self.matrix.integral and self.queries.integral,
            clusters=self.matrix.clusters,
        )

    def sample(self, rows: int) -> Tile | SparseTile:
        """Return some rows that can be read here, at most so many: the matrix's, or else the queries'."""
        # An instance may have a share of the queries alone.
        for operand in (self.matrix, self.queries):
            some = operand.open().some(rows)
            if some is not None:
                return operand.tile(some.start, some.stop)
        raise InvalidInput(f"{self.host} has no rows to compare; its files changed while the job ran")

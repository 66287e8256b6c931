"""The context of all tasks of a similarity, and the rows and operands that a process keeps between them.

A process can read the rows that its instance has, and those of one chunk that came from another instance. Tasks know
rows by their places (see ``arithmetic.tiling``). Before the rows are prepared there is a ``RowShape``, afterwards a
``Context``. Of two tasks that come one after the other, one side of the tile is mostly the same: making its rows ready
again would cost a tenth of comparing them, so ``EngineCache`` keeps it. ``sizing`` says what all of it takes.
"""

import functools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.score import Rows, Tile, scaled
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows, SparseTile
from raysm.workloads.similarity.arithmetic.tight_clusters import TightClusters
from raysm.workloads.similarity.engines.choice import choose
from raysm.workloads.similarity.engines.protocol import Engine, Frame, PreparedTile
from raysm.workloads.similarity.reading.matrix import Matrix, Place, Source


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
        """Return whether these rows can be read."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RowShape:
    """The rows of one channel, before any of them is read."""

    source: Source
    rows: int
    columns: int
    dtype: np.dtype[Any]
    """Type that the rows are read as: that of all rows that they are compared with."""
    ranges: Mapping[str, RowBlock] | None = None
    """The places of each instance's own rows (ShardedByS3Key); None: every instance has all rows (FullyReplicated)."""
    sparse: bool = False
    """Rows are read, and compared, by their elements: the files are CSR, and sparse enough."""

    def open(self) -> ResidentRows:
        """Return what this process can read of them; a process has them once.

        Raises:
            InvalidInput: The instance has not the rows that the head knows of.
        """
        place = self.source.here()
        here = RowBlock(0, self.rows) if self.ranges is None else self.ranges.get(place.host, RowBlock(0, 0))
        own = self.source.open(place) if here.rows or self.source.has_files() else None
        shape = (0, 0) if own is None else (own.rows, own.columns)
        if self.ranges is None and shape != (self.rows, self.columns):
            raise InvalidInput(
                f"the matrix on {place.host} has the shape {shape}, on the head ({self.rows}, {self.columns}); every "
                "instance needs the whole matrix (FullyReplicated)"
            )
        if shape[0] != here.rows:
            raise InvalidInput(
                f"{place.host} has {shape[0]} rows, and had {here.rows}: its files changed while the job ran"
            )
        # The place is part of what decides: a process of a test may be several instances, one after the other.
        return _resident(self.source, place, here.start, self.dtype, empty=not here.rows)

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
    centre: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """centre[D] about which engines may quantise, see ``Frame``; empty is the origin."""
    clusters: TightClusters | None = None
    """Tight clusters of rows, see ``Frame``."""

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
    """The facts that are the same for all tasks of one run; Ray ships them once."""

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
        """True if the rows look for neighbors among themselves."""
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


KEPT_BYTES = 64 << 20
"""Operands are kept up to this; never fewer than the two of one tile."""

ENGINE_BYTES = 104 << 20
"""Most that the engine of NumPy takes: about a dozen arrays of 8 MiB."""

SAMPLE_ROWS = 512
"""Rows that the engine is chosen by."""


class EngineCache:
    """The engine of this process, and the operands that it holds."""

    def __init__(self, context: Context) -> None:
        """Choose the engine by some rows of the context."""
        self.context = context
        self._frame: Frame = context.frame()
        self.engine: Engine[Any] = choose(context.sample(SAMPLE_ROWS), self._frame, context.engine)
        self._operands: dict[tuple[bool, RowBlock], PreparedTile[Any]] = {}

    def tile(self, cut: RowBlock, *, queries: bool = False) -> Tile | SparseTile:
        """Read rows of the matrix, or of the one whose rows look for neighbors."""
        rows = self.context.queries if queries else self.context.matrix
        return rows.tile(cut.start, cut.stop)

    def operand(self, cut: RowBlock, *, queries: bool = False) -> PreparedTile[Any]:
        """Return those rows, ready for products: the ones that were made last need not be made again."""
        key = queries and not self.context.self_join, cut
        operand = self._operands.pop(key, None)
        if operand is None:
            tile = self.tile(cut, queries=queries)
            self._make_room(tile)
            operand = self.engine.prepare(tile, self._frame)
        # Put back last: what was used longest ago is the first to go.
        self._operands[key] = operand
        return operand

    def _make_room(self, tile: Tile | SparseTile) -> None:
        """Drop the oldest operands before there is one more; the latest stays, because it is of the same tile."""
        most = max((operand.nbytes / len(operand) for operand in self._operands.values()), default=0.0)
        while len(self._operands) > 1 and self.held_bytes + len(tile) * most + _copied_bytes(tile) > KEPT_BYTES:
            del self._operands[next(iter(self._operands))]

    @property
    def held_bytes(self) -> int:
        """Memory of all operands that are held now."""
        return sum(operand.nbytes + _copied_bytes(operand.tile) for operand in self._operands.values())

    def drop_what_left(self) -> None:
        """Drop operands whose rows cannot be read here any more: they would keep a remote chunk in memory."""
        resident = {True: self.context.queries.open(), False: self.context.matrix.open()}
        self._operands = {key: operand for key, operand in self._operands.items() if resident[key[0]].holds(key[1])}


def _copied_bytes(tile: Tile | SparseTile) -> int:
    # Rows that own their memory are a copy; the others are views of the mapped file.
    return tile.rows.nbytes if isinstance(tile, SparseTile) or tile.rows.base is None else 0


_caches: dict[str, EngineCache] = {}
"""The one of this process, by its context's token."""


def engine_cache_of(context: Context) -> EngineCache:
    """Return this process's cache for the context: the one of its last task, or a new one instead."""
    if context.token not in _caches:
        # Nothing of another context is used again: it would only take memory.
        _caches.clear()
        _caches[context.token] = EngineCache(context)
    return _caches[context.token]


def engine_name(context: Context) -> str:
    """Return the name of the engine that computed for the context in this process; empty where none did."""
    cache = _caches.get(context.token)
    return "" if cache is None else cache.engine.name

"""Tasks: the context of all tasks of a run, what a process keeps between them, and a task's result.

A process can read the rows that its instance has, and those of one chunk that came from another
instance. Tasks address rows by their places (see ``tiling``). Preparing the rows turns a
``RowShape`` into an ``Operand``, and a ``Context`` holds one or two of these. Consecutive tasks
mostly share one side of the tile. Preparing its rows again would cost a tenth of comparing them, so
``EngineCache`` keeps it. ``tiling`` says how much memory all of this takes.

A ``TileTask`` is one tile to compare. Its result is a ``Part``: arrays and measures, encoded as
bytes that a record can map.
"""

import functools
import json
import resource
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.score import Rows, Tile, scale_rows
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseRows, SparseTile
from raysm.features.similarity.cluster.arithmetic.tight_clusters import TightClusters
from raysm.features.similarity.cluster.engines.choice import choose
from raysm.features.similarity.cluster.engines.protocol import Engine, Frame, PreparedTile
from raysm.features.similarity.cluster.reading.matrix import Location, Matrix, Source
from raysm.instance.work.record import Buffers
from raysm.instance.work.row_blocks import RowBlock, TileBlock


class ResidentRows:
    """The rows that this process can read, by their places."""

    def __init__(self, matrix: Matrix | None, start: int) -> None:
        """Start with the instance's own rows, whose places begin at ``start``.

        ``matrix`` is None on an instance without rows of its own.
        """
        self._held = [] if matrix is None else [(start, matrix)]
        self._remote: list[tuple[int, Matrix]] = []

    def load_remote(self, start: int, rows: Matrix | None) -> None:
        """Replace the remote chunk by one whose places begin at ``start``, or drop it (None)."""
        # Keep only one chunk: a reference to an earlier one would hold its memory in the object
        # store.
        self._remote = [] if rows is None else [(start, rows)]

    def holds(self, block: RowBlock) -> bool:
        return self._find(block.start, block.stop) is not None

    def some(self, rows: int) -> RowBlock | None:
        """Return the places of up to ``rows`` readable rows, own ones before remote ones.

        Return None if there are none.
        """
        for start, matrix in (*self._held, *self._remote):
            return RowBlock(start, start + min(rows, matrix.rows))
        return None

    def read(self, start: int, stop: int) -> Rows:
        begin, matrix = self._holding(start, stop)
        return matrix.read(start - begin, stop - begin)

    def read_sparse(self, start: int, stop: int) -> SparseRows:
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
                f"the rows at the places {start} to {stop - 1} are not on this instance; its "
                "files changed while the "
                "job ran: start it again"
            )
        return holding


TILE_BYTES = 32 << 20
"""Largest float32 copy of a tile's rows."""

MAX_TILE_ROWS = 4096


def tile_rows(columns: int) -> int:
    """Return how many rows of that many columns make a tile: from 1 to ``MAX_TILE_ROWS``."""
    return max(1, min(MAX_TILE_ROWS, TILE_BYTES // (4 * columns)))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowShape:
    source: Source
    rows: int
    columns: int
    dtype: np.dtype[Any]
    """Type that the rows are read as: one for all rows that are compared with each other."""
    ranges: Mapping[str, RowBlock] | None = None
    """The places of each instance's own rows (ShardedByS3Key); None: every instance has all rows
    (FullyReplicated)."""
    sparse: bool = False
    """True if rows are read and compared by their elements: the files are CSR, and sparse
    enough."""

    def open(self) -> ResidentRows:
        location = self.source.here()
        here = (
            RowBlock(0, self.rows)
            if self.ranges is None
            else self.ranges.get(location.host, RowBlock(0, 0))
        )
        own = self.source.open(location) if here.rows or self.source.has_files() else None
        shape = (0, 0) if own is None else (own.rows, own.columns)
        if self.ranges is None and shape != (self.rows, self.columns):
            raise InvalidInput(
                f"the matrix on {location.host} has the shape {shape}, on the head "
                f"({self.rows}, {self.columns}); every instance needs the whole matrix "
                "(FullyReplicated)"
            )
        if shape[0] != here.rows:
            raise InvalidInput(
                f"{location.host} has {shape[0]} rows, and had {here.rows}: its files changed "
                "while the job ran"
            )
        # The location is part of the cache key: in tests, one process may act as several instances
        # in turn.
        return _resident(self.source, location, here.start, self.dtype, empty=not here.rows)


# Cached here and not in ``RowShape``: each task may bring its own copy of that, but a process
# should map the rows once.
# Four: the matrix and the queries of this context, and those of the last one while a process
# switches contexts.
@functools.lru_cache(maxsize=4)
def _resident(
    source: Source, location: Location, start: int, dtype: np.dtype[Any], *, empty: bool
) -> ResidentRows:
    return ResidentRows(None if empty else source.open(location).as_type(dtype), start)


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand(RowShape):
    """The rows of one channel, prepared: all that is needed to compare them, by their places."""

    norms: NDArray[np.float64]
    exponents: NDArray[np.int16]
    """exponents[N], see ``score``; empty if all are 0."""
    centre: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """centre[D] about which engines may quantise, see ``Frame``; empty is the origin."""
    clusters: TightClusters | None = None
    """Tight clusters of rows, see ``Frame``."""

    def tile(self, start: int, stop: int) -> Tile | SparseTile:
        resident = self.open()
        exponents = self.exponents[start:stop]
        if self.sparse:
            # The sparse engine takes the elements as they are.
            sparse = resident.read_sparse(start, stop).scaled(exponents)
            return SparseTile(start=start, rows=sparse, norms=self.norms[start:stop])
        rows = resident.read(start, stop)
        # Without exponents they stay views of the mapped file, which take no memory of the task.
        rows = scale_rows(rows, exponents) if len(exponents) else rows
        return Tile(start=start, rows=rows, norms=self.norms[start:stop])


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The facts that are the same for all tasks of one run.

    Ray sends them once to each instance.
    """

    matrix: Operand
    other_queries: Operand | None = None
    """The rows that look for them; None: the matrix's own do."""
    engine: str | None = None
    """A word of the name of the engine to use; None lets a probe choose."""
    operand_rows: int | None = None
    """Most rows that a task prepares at once: it does a larger tile in several cuts; None sets no
    limit."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Identifies this context: a process reuses its ``EngineCache`` only for tasks of the same
    context."""

    @property
    def queries(self) -> Operand:
        return self.other_queries or self.matrix

    @property
    def self_join(self) -> bool:
        return self.other_queries is None

    @property
    def host(self) -> str:
        return self.matrix.source.here().host

    def frame(self) -> Frame:
        """Return the frame in which engines see both matrices."""
        centre = self.matrix.centre if len(self.matrix.centre) else np.zeros(self.matrix.columns)
        return Frame(centre=centre, clusters=self.matrix.clusters)

    def sample(self, rows: int) -> Tile | SparseTile:
        # An instance may have only a share of the queries.
        for operand in (self.matrix, self.queries):
            some = operand.open().some(rows)
            if some is not None:
                return operand.tile(some.start, some.stop)
        raise InvalidInput(
            f"{self.host} has no rows to compare; its files changed while the job ran"
        )


KEPT_BYTES = 64 << 20
"""Most bytes of kept operands; the two of the latest tile are kept in any case."""

SAMPLE_ROWS = 512
"""Rows on which engines are probed."""


class EngineCache:
    """The engine of this process, and the operands that it holds."""

    def __init__(self, context: Context) -> None:
        """Choose the engine by some rows of the context."""
        self.context = context
        self._frame: Frame = context.frame()
        self.engine: Engine[Any] = choose(context.sample(SAMPLE_ROWS), self._frame, context.engine)
        self._operands: dict[tuple[bool, RowBlock], PreparedTile[Any]] = {}

    def tile(self, cut: RowBlock, *, queries: bool = False) -> Tile | SparseTile:
        rows = self.context.queries if queries else self.context.matrix
        return rows.tile(cut.start, cut.stop)

    def operand(self, cut: RowBlock, *, queries: bool = False) -> PreparedTile[Any]:
        key = queries and not self.context.self_join, cut
        operand = self._operands.pop(key, None)
        if operand is None:
            tile = self.tile(cut, queries=queries)
            # Drop the oldest operands first; the latest stays, because it belongs to the same tile.
            most = max(
                (operand.nbytes / len(operand) for operand in self._operands.values()), default=0.0
            )
            while (
                len(self._operands) > 1
                and self.held_bytes + len(tile) * most + _copied_bytes(tile) > KEPT_BYTES
            ):
                del self._operands[next(iter(self._operands))]
            operand = self.engine.prepare(tile, self._frame)
        # Put it last: the first operand is the least recently used.
        self._operands[key] = operand
        return operand

    @property
    def held_bytes(self) -> int:
        return sum(
            operand.nbytes + _copied_bytes(operand.tile) for operand in self._operands.values()
        )

    def drop_absent_operands(self) -> None:
        """Drop operands whose rows can no longer be read here.

        Such operands would keep a remote chunk in memory.
        """
        resident = {True: self.context.queries.open(), False: self.context.matrix.open()}
        self._operands = {
            key: operand
            for key, operand in self._operands.items()
            if resident[key[0]].holds(key[1])
        }


def _copied_bytes(tile: Tile | SparseTile) -> int:
    # Rows that own their memory are a copy; the others are views of the mapped file.
    return tile.rows.nbytes if isinstance(tile, SparseTile) or tile.rows.base is None else 0


_caches: dict[str, EngineCache] = {}
"""This process's cache, by its context's token; it has at most one entry."""


def get_engine_cache(context: Context) -> EngineCache:
    if context.token not in _caches:
        # Free the memory of an earlier context.
        _caches.clear()
        _caches[context.token] = EngineCache(context)
    return _caches[context.token]


def engine_name(context: Context) -> str:
    cache = _caches.get(context.token)
    return "" if cache is None else cache.engine.name


@dataclass(frozen=True, slots=True, eq=False)
class TileTask:
    """A tile that any instance can compute; the places of rows are their numbers.

    Its ``str`` names it in messages and in the record, without the hint, which differs from run to
    run.
    """

    tile: TileBlock
    """Places of the queries' rows, and of the matrix's."""
    self_join: bool
    hint: Any = None
    """What the mode knew when the task was dispatched: it saves time, and never changes the
    answer."""

    @property
    def mirrored(self) -> bool:
        """True if the tile serves its columns too, as tiles off the diagonal of a self-join do."""
        return self.self_join and self.tile.rows != self.tile.columns

    @property
    def area(self) -> float:
        """The work, in pairs; a block with itself counts each unordered pair once."""
        entries = self.tile.rows.rows * self.tile.columns.rows
        return entries / 2 if self.self_join and not self.mirrored else entries

    @property
    def in_order(self) -> bool:
        """True if the places of its rows and columns are their numbers."""
        return True

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def __str__(self) -> str:
        return str(self.tile)


class Comparing(Protocol):
    """The interface that tasks call: a mode, or ``Handover``, which sends to the owners."""

    def compare(self, context: Context, task: TileTask) -> Mapping[str, NDArray[Any]]:
        """Do one task in a process that can read the rows of its tile.

        Return the arrays for the head.
        """
        ...


ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    arrays: Mapping[str, NDArray[Any]]
    peaks: Mapping[str, int]
    """The most memory that a task's process ever held on each instance, with mapped pages."""
    seconds: float
    engines: tuple[str, ...] = ()
    """Names of the engines that computed it; empty if it needed none."""


def run_task(
    function: Callable[[Context, Any], Mapping[str, NDArray[Any]]], context: Context, block: Any
) -> Part:
    """Run ``function(context, block)``, which compares rows.

    Return its arrays with time, memory and engine.
    """
    part = _time_call(function, context, block, context.host)
    name = engine_name(context)
    return replace(part, engines=(name,) if name else ())


def run_preparation(
    function: Callable[[RowShape, Any], Mapping[str, NDArray[Any]]], shape: RowShape, block: Any
) -> Part:
    return _time_call(function, shape, block, shape.source.here().host)


def _time_call(
    function: Callable[..., Mapping[str, NDArray[Any]]], argument: Any, block: Any, host: str
) -> Part:
    begin = time.perf_counter()
    arrays = function(argument, block)
    return Part(
        arrays=arrays, peaks={host: peak_memory_bytes()}, seconds=time.perf_counter() - begin
    )


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held, including mapped pages of the matrix."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def encode_part(part: Part) -> Buffers:
    """Turn a part into bytes: one line of JSON, then the arrays, each on a 64-byte boundary."""
    # Copy transposed and strided arrays, whose bytes are not contiguous.
    arrays = {name: np.asarray(array, order="C") for name, array in part.arrays.items()}
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    fields = {
        "arrays": shapes,
        "peaks": part.peaks,
        "seconds": part.seconds,
        "engines": part.engines,
    }
    line = json.dumps(fields).encode()
    # The padding lets each array begin on a boundary, as mapping needs it.
    buffers: list[bytes | memoryview] = [
        line.ljust(-(len(line) + 1) % ALIGNMENT + len(line)) + b"\n"
    ]
    for array in arrays.values():
        if array.nbytes:
            buffers += [array.data.cast("B"), bytes(-array.nbytes % ALIGNMENT)]
    return buffers


def decode_part(data: memoryview) -> Part:
    # The JSON has no newline in it and is padded, so its line ends with the first newline at the
    # end of a 64-byte block.
    end = next(at for at in range(ALIGNMENT - 1, len(data), ALIGNMENT) if data[at] == 10) + 1
    fields = json.loads(bytes(data[:end]))
    arrays = {}
    for name, kind, shape in fields["arrays"]:
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=np.int64))
        flat = (
            np.frombuffer(data, dtype=dtype, count=count, offset=end)
            if count
            else np.empty(0, dtype)
        )
        arrays[name] = flat.reshape(shape)
        end += count * dtype.itemsize
        end += -end % ALIGNMENT
    return Part(
        arrays=arrays,
        peaks=fields["peaks"],
        seconds=fields["seconds"],
        engines=tuple(fields["engines"]),
    )

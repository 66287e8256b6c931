"""Top-k: the k most similar rows of each.

A part holds the *keys* (``arithmetic.keys``) of the neighbors that reach the lower bounds in the
task's hint, which are few after some tiles. ``counts`` has the number of keys of each row; ``keys``
has them one row after the other, each row's sorted. A tile of two different blocks of one matrix
also has the keys of its columns: ``column_counts`` and ``column_keys``. A piece names its rows by
runs of consecutive numbers, ``starts`` and ``lengths``: a block of rows is one run, or a few if its
files lie on different instances.

The result, ``neighbors.parquet``, has one row for each row of the matrix: ``row``, ``neighbors``
and ``similarities``, a fixed-size list of k each, the best first. If a column names the rows,
``id`` is next to ``row``, and ``neighbor_ids`` next to the neighbors. It is written in bounded
memory.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.core.protocol.result import ResultFile
from raysm.errors import InvalidInput
from raysm.features.similarity.cluster import tiling
from raysm.features.similarity.cluster.arithmetic.keys import (
    EMPTY_KEY,
    INDEX_BITS,
    TopKAccumulator,
    decode,
    encode,
    zero_row_keys,
)
from raysm.features.similarity.cluster.engines.protocol import Best
from raysm.features.similarity.cluster.modes.mode import (
    GROUP_ROWS,
    AskBounds,
    Mode,
    OwnedRange,
    Piece,
    RangeMerger,
    Ranges,
    ReadRows,
    required_schema,
    searched_columns,
    served_numbers,
)
from raysm.features.similarity.cluster.reading.columns import Ids, as_array, take_ids
from raysm.features.similarity.cluster.reading.matrix import MatrixInfo
from raysm.features.similarity.cluster.tasks import (
    Context,
    EngineCache,
    Part,
    TileTask,
    get_engine_cache,
)
from raysm.features.similarity.cluster.tiling import PART_BYTES, PartLimits, RowRun, find_runs
from raysm.features.similarity.request import Similarity
from raysm.instance.work.gather import check_room
from raysm.instance.work.parquet import write_parquet
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.row_blocks import RowBlock, TileBlock

NEIGHBORS = "neighbors"
"""Name of the result: of its one file, without a suffix, or of the folder of its parts."""

GROUP_BYTES = 16 << 20
"""Size of a row group of ``neighbors.parquet``, if ids are as long as their mean."""

STEP_KEYS = 1 << 15
"""Keys that are decoded at a time: they and the decoded values stay in a core's cache."""

Side: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint64]]
"""numbers[n] of rows, rising; counts[n] of their keys; and the keys."""


# eq=False, because comparing arrays yields an array.
@dataclass(frozen=True, slots=True, eq=False)
class TileBounds:
    """Lower bounds of the k-th best score of each row, known when the tile is dispatched.

    Bounds change no answer.
    """

    row_bounds: NDArray[np.float32]
    column_bounds: NDArray[np.float32]
    """lower_bounds[columns]; empty if the tile is not mirrored."""


@dataclass(frozen=True, slots=True)
class TopK(Mode):
    name: ClassVar[str] = "topk"

    k: int

    @property
    def merged_row_bytes(self) -> int:
        return 8 * self.k

    @classmethod
    def from_workload(cls, workload: Similarity) -> Self | None:
        return None if workload.top_k is None else cls(workload.top_k)

    @property
    def limits(self) -> PartLimits:
        """A part holds up to k keys of 8 bytes for each of its rows, and for as many columns."""
        return PartLimits(rows=max(1, PART_BYTES // (16 * self.k)), joins=True)

    def check(self, queries: MatrixInfo, matrix: MatrixInfo, *, self_join: bool) -> None:
        # A row is not its own neighbor.
        most = matrix.rows - 1 if self_join else matrix.rows
        if self.k > most:
            raise InvalidInput(
                f"{self.k:,} neighbors of each row: the matrix has {matrix.rows:,} rows; ask for "
                f"at most {most:,}"
            )

    def add_hint(self, task: TileTask, ask: AskBounds) -> TileTask:
        """Return the task with its rows' lower bounds, and its columns' if it is mirrored."""
        rows, columns = (
            ask(numbers) if len(numbers) else np.empty(0, dtype=np.float32)
            for numbers in served_numbers(task)
        )
        return replace(task, hint=TileBounds(rows, columns))

    def probe_hint(self, context: Context, above: RowBlock, beside: RowBlock) -> TileBounds:
        bounds = []
        for block in (above, beside):
            found = self.compare(context, TileTask(TileBlock(block, block), self_join=True))
            ends = np.cumsum(found["counts"], dtype=np.int64)
            scores = decode(found["keys"])[0]
            # If a row has k keys, the last is its k-th best.
            full = found["counts"] >= self.k
            lowest = np.full(block.rows, -np.inf, dtype=np.float32)
            lowest[full] = scores[ends[full] - 1]
            bounds.append(lowest)
        return TileBounds(*bounds)

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        cache = get_engine_cache(context)
        tile = task.tile
        bounds = task.hint
        once = context.self_join and tile.rows == tile.columns
        cuts = _Cuts(cache, context.operand_rows)
        best = Best.empty(cuts.norms(tile.rows, queries=True), self.k, bounds and bounds.row_bounds)
        other = best
        if task.mirrored:
            other = Best.empty(cuts.norms(tile.columns), self.k, bounds and bounds.column_bounds)
        mine = list(cuts.pieces(tile.rows, best))
        bounds_of_columns = other if task.mirrored else None
        theirs = mine if once else list(cuts.pieces(tile.columns, bounds_of_columns))
        for at, (rows, first) in enumerate(mine):
            # A tile on the diagonal compares each pair of pieces once.
            for columns, second in theirs[at:] if once else theirs:
                left = cache.operand(rows, queries=True)
                right = cache.operand(columns)
                cache.engine.topk(left, right, first, second, same=context.self_join)
        counts, keys = _keys_within_bounds(best)
        found: dict[str, NDArray[Any]] = {
            "counts": counts,
            "keys": _replace_places(keys, task, task.column_numbers),
        }
        if task.mirrored:
            counts, keys = _keys_within_bounds(other)
            found |= {
                "column_counts": counts,
                "column_keys": _replace_places(keys, task, task.row_numbers),
            }
        return found

    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        rows, columns = served_numbers(task)
        pieces: dict[int, list[Side]] = defaultdict(list)
        _split_side(pieces, ranges, (rows, arrays["counts"], arrays["keys"]))
        if "column_counts" in arrays:
            _split_side(pieces, ranges, (columns, arrays["column_counts"], arrays["column_keys"]))
        for at, sides in pieces.items():
            # Find runs on each side alone: the rows and columns of a tile may overlap, but have
            # separate keys.
            runs = [run for numbers, _, _ in sides for run in find_runs(numbers)]
            piece = {
                "starts": np.array([run.start for run in runs], dtype=np.int64),
                "lengths": np.array([run.rows for run in runs], dtype=np.int64),
                "counts": np.concatenate([counts for _, counts, _ in sides]),
                "keys": np.concatenate([keys for _, _, keys in sides]),
            }
            yield at, piece

    def merger(
        self, owned: OwnedRange, folder: Path, scratch: Path, record: BlockRecord[Part]
    ) -> RangeMerger:
        return _Merger(self.k, owned, folder, scratch)

    def check_room(self, folder: Path, rows: int) -> None:
        check_room([(folder, _result_bytes(rows, self.k))])

    def write_merged(
        self,
        folder: Path,
        rows: int,
        read: ReadRows,
        ids: Ids | None,
        on_rows: Callable[[int], None],
    ) -> ResultFile:
        path = folder / f"{NEIGHBORS}.parquet"
        return write_neighbors(path, RowBlock(0, rows), read, self.k, on_rows, ids)


def _result_bytes(rows: int, k: int) -> int:
    # Each neighbor has a number, a score and one bit for the beginnings of lists; each row has a
    # number. Ids do not count, because their sizes are known only later.
    return rows * (12 * k + k // 8 + 9)


def _replace_places(
    keys: NDArray[np.uint64],
    task: TileTask,
    numbers: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> NDArray[np.uint64]:
    """Replace places by numbers in the keys.

    Both rise together within a tile, so ties keep their order.
    """
    if task.in_order:
        return keys
    return (keys & ~INDEX_BITS) | numbers((keys & INDEX_BITS).astype(np.int64)).astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Cuts a tile into pieces of at most ``max_rows`` rows, which are prepared one at a time."""

    cache: EngineCache
    max_rows: int | None

    def of(self, block: RowBlock) -> list[RowBlock]:
        count = math.ceil(block.rows / (self.max_rows or max(1, block.rows)))
        return tiling.split_rows(block, math.ceil(block.rows / max(1, count)))

    def norms(self, block: RowBlock, *, queries: bool = False) -> NDArray[np.float64]:
        return np.concatenate(
            [self.cache.tile(cut, queries=queries).norms for cut in self.of(block)]
        )

    def pieces(self, block: RowBlock, best: Best | None) -> Iterator[tuple[RowBlock, Any]]:
        """Yield the pieces of a block, each with its part of ``best`` (None if that is None)."""
        for cut in self.of(block):
            rows = slice(cut.start - block.start, cut.stop - block.start)
            # Views, so that engines write into the best of the whole tile.
            yield cut, None if best is None else Best(best.keys[rows], best.lower_bounds[rows])


def _keys_within_bounds(best: Best) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    # Compare with the last key of that score: a neighbor that ties with the bound may be among the
    # k by its lower index.
    last = encode(best.lower_bounds, np.full(len(best.lower_bounds), 0xFFFFFFFF))
    reach = (best.keys <= last[:, None]) & (best.keys != EMPTY_KEY)
    return np.count_nonzero(reach, axis=1).astype(np.uint32), best.keys[reach]


def _split_side(pieces: dict[int, list[Side]], ranges: Ranges, side: Side) -> None:
    numbers, counts, keys = side
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    for at, some in ranges.of(numbers):
        pieces[at].append((numbers[some], counts[some], keys[ends[some.start] : ends[some.stop]]))


class _Merger(RangeMerger):
    def __init__(self, k: int, owned: OwnedRange, folder: Path, scratch: Path) -> None:
        self._owned = owned
        self._k = k
        self._folder = folder
        rows = owned.rows.rows
        self.result_bytes = _result_bytes(rows, k)
        self.scratch_bytes = self.recorded_bytes = rows * k * 8
        self._accumulator = TopKAccumulator(scratch, rows, k)

    def bounds(self, runs: Sequence[RowRun]) -> NDArray[np.float32]:
        bounds = self._accumulator.lower_bounds
        first = self._owned.rows.start
        # ``concatenate`` copies, as it must: the bounds rise while Ray sends them.
        return np.concatenate(
            [bounds[run.start - first : run.start - first + run.rows] for run in runs]
        )

    def take(self, name: str, piece: Piece) -> None:
        row = key = 0
        for start, length in zip(piece["starts"].tolist(), piece["lengths"].tolist(), strict=True):
            counts = piece["counts"][row : row + length]
            keys = int(counts.sum())
            first = start - self._owned.rows.start
            self._accumulator.merge(
                RowBlock(first, first + length), counts, piece["keys"][key : key + keys]
            )
            row = row + length
            key = key + keys

    def write(self, ids: Ids | None, on_rows: Callable[[int], None]) -> ResultFile:
        path = self._owned.path(self._folder, NEIGHBORS, ".parquet")
        file = write_neighbors(path, self._owned.rows, self.read, self._k, on_rows, ids)
        return self._owned.describe(file, NEIGHBORS)

    def close(self) -> None:
        self._accumulator.close()

    def read(self, start: int, stop: int) -> NDArray[np.uint64]:
        # The accumulator counts from the first row of the range.
        keys = self._accumulator.read(start - self._owned.rows.start, stop - self._owned.rows.start)
        low, high = np.searchsorted(self._owned.zero_rows, [start, stop])
        zero = self._owned.zero_rows[low:high]
        keys[zero - start] = zero_row_keys(zero, self._k, same=self._owned.self_join)
        return keys


# ---- the table


def write_neighbors(
    path: Path,
    rows: RowBlock,
    keys: Callable[[int, int], NDArray[np.uint64]],
    k: int,
    on_rows: Callable[[int], None] = lambda rows: None,
    ids: Ids | None = None,
) -> ResultFile:
    """Write the neighbors of some rows.

    ``keys`` returns keys[stop - start, k] of rows start to stop, the best first. It calls
    ``on_rows`` with the number of further rows that are written.
    """
    # An int64 and a float32 for each neighbor, and the row's own number.
    row_bytes = 12 * k + 8 + (0 if ids is None else ids.row_bytes + k * ids.neighbor_bytes)
    size = max(1, min(GROUP_ROWS, int(GROUP_BYTES / row_bytes)))
    named = (
        {} if ids is None else {"id": ids.rows.type, "neighbor_ids": _list(ids.neighbors.type, k)}
    )
    schema = required_schema(
        ("row", "id", "neighbors", "neighbor_ids", "similarities"),
        {
            "row": pa.int64(),
            "neighbors": _list(pa.int64(), k),
            "similarities": _list(pa.float32(), k),
        }
        | named,
    )

    def groups() -> Iterator[list[pa.Array]]:
        for start in range(rows.start, rows.stop, size):
            stop = min(start + size, rows.stop)
            neighbors, similarities = _decode_in_steps(keys, start, stop, k)
            columns = {
                "row": as_array(np.arange(start, stop)),
                "neighbors": _lists(as_array(neighbors), schema, "neighbors"),
                "similarities": _lists(as_array(similarities), schema, "similarities"),
            }
            if ids is not None:
                columns["id"] = ids.rows.slice(start, stop - start)
                columns["neighbor_ids"] = _lists(
                    take_ids(ids.neighbors, neighbors), schema, "neighbor_ids"
                )
            yield [columns[name] for name in schema.names]
            # The writer asks for the next group once this one has left for the disk.
            on_rows(stop - start)

    return write_parquet(
        path,
        schema,
        groups(),
        inner=(k,),
        units=("rows", "neighbors"),
        statistics=searched_columns(schema),
    )


def _decode_in_steps(
    keys: Callable[[int, int], NDArray[np.uint64]], start: int, stop: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return neighbors[n * k] and scores[n * k], made in steps that stay in the cache."""
    neighbors = np.empty((stop - start, k), dtype=np.int64)
    scores = np.empty((stop - start, k), dtype=np.float32)
    step = max(1, STEP_KEYS // k)
    for at in range(start, stop, step):
        some = slice(at - start, min(at + step, stop) - start)
        scores[some], neighbors[some] = decode(keys(at, min(at + step, stop)))
    return neighbors.ravel(), scores.ravel()


def _list(kind: pa.DataType, k: int) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False), k)


def _lists(values: pa.Array, schema: pa.Schema, name: str) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values, type=schema.field(name).type)

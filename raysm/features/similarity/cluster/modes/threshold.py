"""Threshold: all pairs that are similar enough.

Owners record pieces, and merge them when all are there. A part and a piece name pairs by numbers:
``rows[u]``, rising, the ``counts[u]`` of their pairs, and ``neighbors[n]`` and ``similarities[n]``
of one row after the other, neighbors rising. A pair belongs to the owner of its row; in a
self-join, the row is the one with the lower number.

The number of pairs of a tile is unknown in advance. A task gives up a tile as soon as it finds more
pairs than it may return; the tile is then computed again in smaller pieces.

The result, ``pairs.parquet``, has ``row``, ``neighbor`` and ``similarity``, sorted by row and
neighbor. If a column names the rows, it also has ``id`` and ``neighbor_id``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.core.protocol.result import ResultFile
from raysm.features.similarity.cluster import tiling
from raysm.features.similarity.cluster.arithmetic.score import least_score
from raysm.features.similarity.cluster.engines.protocol import Pairs, pair_order
from raysm.features.similarity.cluster.modes.mode import (
    GROUP_ROWS,
    Mode,
    OwnedRange,
    Piece,
    RangeMerger,
    Ranges,
    required_schema,
    searched_columns,
    served_numbers,
)
from raysm.features.similarity.cluster.reading.columns import Ids, as_array, take_ids
from raysm.features.similarity.cluster.tasks import Context, Part, TileTask, get_engine_cache
from raysm.features.similarity.cluster.tiling import PART_BYTES, PartLimits
from raysm.features.similarity.request import Similarity
from raysm.instance.work.gather import check_room, regroup
from raysm.instance.work.parquet import write_parquet
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.row_blocks import RowBlock, TileBlock

PAIRS = "pairs"
"""Name of the result: of its one file, without a suffix, or of the folder of its parts."""

PAIR_BYTES = 20

PairChunk: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Rows, neighbors and similarities of consecutive pairs."""

MAX_PAIRS = PART_BYTES // 8
"""Most pairs of one part: a neighbor and a score take 8 bytes."""

PANEL_ROWS = 2048
"""Most rows, and columns, of one call of the engine, which so finds at most ``MAX_PAIRS`` pairs."""


@dataclass(frozen=True, slots=True)
class Threshold(Mode):
    name: ClassVar[str] = "threshold"

    least: np.float32

    @classmethod
    def from_workload(cls, workload: Similarity) -> Self | None:
        # Not ``np.float32(threshold)``: float32(0.9) is below 0.9, so that pairs below the
        # threshold would be reported.
        return None if workload.threshold is None else cls(least_score(workload.threshold))

    @property
    def limits(self) -> PartLimits:
        return PartLimits(open_ended=True)

    def ranges(self, rows: int, count: int, *, self_join: bool) -> Ranges:
        """Split the rows into ranges with about equally many pairs, if they are spread evenly."""
        # In a self-join the first row may have a pair with any other, and the last has none.
        return Ranges.falling(rows, count) if self_join else Ranges.even(rows, count)

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Return a tile's pairs, or only ``overflowed`` if a task may not return so many."""
        arrays = threshold_tile(context, self.least, task.tile)
        return arrays if "overflowed" in arrays else _number_pairs(context, task, arrays)

    def split_given_up(self, task: TileTask, arrays: Piece) -> Sequence[TileBlock]:
        if "overflowed" not in arrays:
            return ()
        return list(
            pieces(TileBlock(RowBlock(0, task.tile.rows.rows), RowBlock(0, task.tile.columns.rows)))
        )

    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        if len(ranges) == 1:
            yield 0, arrays
            return
        ends = np.concatenate([[0], np.cumsum(arrays["counts"], dtype=np.int64)])
        some_of = dict(ranges.of(arrays["rows"].astype(np.int64)))
        # In a self-join a column may be the first of a pair, too.
        touched = {at for numbers in served_numbers(task) for at, _ in ranges.of(numbers)}
        for at in sorted(touched):
            some = some_of.get(at, slice(0, 0))
            pairs = slice(ends[some.start], ends[some.stop])
            yield (
                at,
                {
                    "rows": arrays["rows"][some],
                    "counts": arrays["counts"][some],
                    "neighbors": arrays["neighbors"][pairs],
                    "similarities": arrays["similarities"][pairs],
                },
            )

    def merger(
        self, owned: OwnedRange, folder: Path, scratch: Path, record: BlockRecord[Part]
    ) -> RangeMerger:
        return _Merger(owned, folder, record)


def threshold_tile(
    context: Context, threshold: np.float32, tile: TileBlock
) -> dict[str, NDArray[Any]]:
    """Return the tile's pairs with a score of at least ``threshold``.

    In a self-join, those with row < neighbor. They are arrays as in ``Pairs``; or only
    ``overflowed`` if there are more than ``MAX_PAIRS`` and the tile can be cut into ``pieces``.
    """
    cache = get_engine_cache(context)
    # Hold all operands here: every line needs them, and the cache drops the oldest if they are
    # large.
    right = [cache.operand(panel) for panel in tiling.split_rows(tile.columns, PANEL_ROWS)]
    above = tiling.split_rows(tile.rows, PANEL_ROWS)
    found: list[tuple[RowBlock, Pairs]] = []
    total = 0
    for panel in above:
        left = cache.operand(panel, queries=True)
        for beside in right:
            if context.self_join and panel.start >= beside.tile.start + len(beside) - 1:
                continue  # below the diagonal there is no row < neighbor
            found.append(
                (panel, cache.engine.pairs(left, beside, threshold, same=context.self_join))
            )
            total += len(found[-1][1].neighbors)
            # Do not give up a single column, which cannot be cut: it would be given up again and
            # again.
            if total > MAX_PAIRS and tile.columns.rows > 1:
                return {"overflowed": np.array([total])}
    if len(found) == len(above) == 1:
        pairs = found[0][1]
    else:
        pairs = Pairs.of(
            (_part(panel, some, tile.rows.start) for panel, some in found), tile.rows.rows
        )
    return {
        "offsets": pairs.offsets,
        "neighbors": pairs.neighbors,
        "similarities": pairs.similarities,
    }


def _part(panel: RowBlock, pairs: Pairs, first: int) -> tuple[NDArray[Any], ...]:
    rows = np.repeat(np.arange(panel.start, panel.stop) - first, np.diff(pairs.offsets))
    return rows, pairs.neighbors, pairs.similarities


def pieces(tile: TileBlock) -> Iterator[TileBlock]:
    """Split an overflowed tile by columns into tiles of at most ``MAX_PAIRS`` entries."""
    for panel in tiling.split_rows(tile.columns, max(1, MAX_PAIRS // tile.rows.rows)):
        yield TileBlock(tile.rows, panel)


def _number_pairs(
    context: Context, task: TileTask, arrays: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return a tile's pairs with the numbers of their rows, sorted by them."""
    counts = np.diff(arrays["offsets"])
    places = np.flatnonzero(counts) + task.tile.rows.start
    if task.in_order:
        # The pairs are sorted already, and need no copies as int64.
        return {
            "rows": places.astype(np.uint32),
            "counts": counts[counts > 0].astype(np.uint32),
            "neighbors": arrays["neighbors"],
            "similarities": arrays["similarities"],
        }
    row = np.repeat(task.row_numbers(places), counts[counts > 0])
    neighbors = task.column_numbers(arrays["neighbors"].astype(np.int64))
    if context.self_join:
        # A self-join writes a pair once, with the lower number first, wherever the two rows lie.
        row, neighbors = np.minimum(row, neighbors), np.maximum(row, neighbors)
    order = pair_order(row, neighbors)
    rows, counts = np.unique(row[order], return_counts=True)
    return {
        "rows": rows.astype(np.uint32),
        "counts": counts.astype(np.uint32),
        "neighbors": neighbors[order].astype(np.uint32),
        "similarities": arrays["similarities"][order],
    }


class _Merger(RangeMerger):
    """Notes which recorded pieces have pairs.

    ``write`` then merges about one row group of pairs at a time.
    """

    keeps_pieces: ClassVar[bool] = True

    def __init__(self, owned: OwnedRange, folder: Path, record: BlockRecord[Part]) -> None:
        self._owned = owned
        self._folder = folder
        self._record = record
        self._with_pairs: list[str] = []
        self._pairs = 0

    def take(self, name: str, piece: Piece) -> None:
        """Note a piece, unless empty: ``merge_pairs`` needs the first and last row of each."""
        if len(piece["rows"]):
            self._with_pairs.append(name)
            self._pairs += len(piece["neighbors"])

    def write(self, ids: Ids | None, on_rows: Callable[[int], None]) -> ResultFile:
        check_room(
            [(self._folder, int(self._pairs * pair_bytes(ids)))],
            where="the owner of these rows",
        )
        chunks = merge_pairs(self._record, self._with_pairs, self._owned.rows, on_rows)
        file = write_pairs(self._owned.path(self._folder, PAIRS, ".parquet"), chunks, ids)
        return self._owned.describe(file, PAIRS)


def merge_pairs(
    record: BlockRecord[Part], names: Sequence[str], rows: RowBlock, on_rows: Callable[[int], None]
) -> Iterator[PairChunk]:
    """Merge the recorded pieces of these rows; yield their pairs sorted by row and neighbor.

    About ``GROUP_ROWS`` pairs are yielded at a time. Only one piece is open at a time, and only the
    pairs to be merged are copied out of it: a large matrix has more pieces than a process may have
    open files.
    """
    counts = np.zeros(rows.rows, dtype=np.int64)
    bounds = []
    for name in names:
        arrays = record.load(name, mapped_bytes=0).arrays
        # NumPy adds only once for a repeated index, but a piece names each row only once.
        counts[arrays["rows"] - rows.start] += arrays["counts"]
        bounds.append((int(arrays["rows"][0]), int(arrays["rows"][-1])))
    before = np.concatenate([[0], np.cumsum(counts)])
    start = rows.start
    while start < rows.stop:
        full = (
            int(np.searchsorted(before, before[start - rows.start] + GROUP_ROWS, side="right")) - 1
        )
        # All pairs of a row stay together.
        stop = min(max(start + 1, rows.start + full), rows.stop)
        parts = [
            _pairs_between(record, name, start, stop)
            for name, (first, last) in zip(names, bounds, strict=True)
            if first < stop and start <= last
        ]
        if parts:
            row, neighbor, similarity = (
                np.concatenate(columns) for columns in zip(*parts, strict=True)
            )
            order = pair_order(row, neighbor)
            yield row[order].astype(np.int64), neighbor[order].astype(np.int64), similarity[order]
        on_rows(stop - start)
        start = stop


def _pairs_between(
    record: BlockRecord[Part], name: str, start: int, stop: int
) -> tuple[NDArray[Any], ...]:
    arrays = record.load(name, mapped_bytes=0).arrays
    low, high = np.searchsorted(arrays["rows"], [start, stop]).tolist()
    first = int(arrays["counts"][:low].sum())
    counts = arrays["counts"][low:high]
    some = slice(first, first + int(counts.sum()))
    row = np.repeat(arrays["rows"][low:high], counts)
    # Copies, so that the piece's file is closed on return: a view would keep it open.
    return row, arrays["neighbors"][some].copy(), arrays["similarities"][some].copy()


# ---- the table


def pair_bytes(ids: Ids | None) -> float:
    return PAIR_BYTES if ids is None else PAIR_BYTES + ids.row_bytes + ids.neighbor_bytes


def write_pairs(path: Path, chunks: Iterable[PairChunk], ids: Ids | None = None) -> ResultFile:
    named = {} if ids is None else {"id": ids.rows.type, "neighbor_id": ids.neighbors.type}
    schema = required_schema(
        ("row", "id", "neighbor", "neighbor_id", "similarity"),
        {"row": pa.int64(), "neighbor": pa.int64(), "similarity": pa.float32()} | named,
    )
    size = max(1, int(GROUP_ROWS * PAIR_BYTES / pair_bytes(ids)))

    def groups() -> Iterator[list[pa.Array]]:
        # Regroup them: the chunks keep a row's pairs together, and so differ in length.
        for rows, neighbors, similarities in regroup(chunks, size):
            columns = {
                "row": as_array(rows),
                "neighbor": as_array(neighbors),
                "similarity": as_array(similarities),
            }
            if ids is not None:
                columns |= {
                    "id": take_ids(ids.rows, rows),
                    "neighbor_id": take_ids(ids.neighbors, neighbors),
                }
            yield [columns[name] for name in schema.names]

    return write_parquet(
        path, schema, groups(), units=("pairs",), statistics=searched_columns(schema)
    )

"""A threshold: all pairs that are similar enough. Parts are recorded, and merged when all are there.

A part names pairs by numbers: ``rows[u]``, rising, ``counts[u]`` of each, and ``neighbors[n]`` and ``similarities[n]``
of one row after the other, neighbors rising. So whoever merges parts need not know where a row lies.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.gather import check_room, free_bytes
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.modes.mode import Collector, Mode, Tiling
from raysm.workloads.similarity.modes.threshold_tile import pieces, threshold_tile
from raysm.workloads.similarity.reading.matrix import Described, Matrix
from raysm.workloads.similarity.runs import Folders, Run
from raysm.workloads.similarity.sizing.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["Threshold"]


@dataclass(frozen=True, slots=True)
class Threshold(Mode):
    """All pairs with a score of at least ``least``."""

    name: ClassVar[str] = "threshold"

    least: np.float32
    """The lowest score."""

    @classmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if a threshold is asked for."""
        # Not ``np.float32(threshold)``: that of 0.9 lies below it, and pairs that do not reach it would be reported.
        return None if workload.threshold is None else cls(least_score(workload.threshold))

    @property
    def limits(self) -> PartLimits:
        """Nobody knows before how many pairs there are."""
        return PartLimits(open_ended=True)

    def check_room(
        self,
        queries: Described,
        matrix: Described,
        folders: Folders,
        scratch: Path,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """See ``Mode``: what the pairs take is known, and checked, when they are."""

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Return the pairs of a tile; or ``overflowed`` alone where a task may not hand back so many."""
        arrays = threshold_tile(context, self.least, task.tile)
        return arrays if "overflowed" in arrays else _numbered(context, task, arrays)

    def collect(self, run: Run, tiles: Tiling, record: BlockRecord[Any], sizing: Sizing) -> Collector:
        """Begin to note which tasks found pairs."""
        return _Collector(run, record)

    def gathering_seconds(self, matrix: Matrix, scratch: Path, slots: int) -> float:
        """Return nothing: it follows from the number of pairs."""
        return 0.0


def _numbered(context: Context, task: TileTask, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    counts = np.diff(arrays["offsets"])
    places = np.flatnonzero(counts) + task.tile.rows.start
    rows, neighbor_places = task.row_numbers(places), arrays["neighbors"].astype(np.int64)
    neighbors = task.column_numbers(neighbor_places)
    if rows is places and neighbors is neighbor_places:
        # What lies whole is in order: nothing is sorted, and no pair is written twice as wide.
        return {
            "rows": places.astype(np.uint32),
            "counts": counts[counts > 0].astype(np.uint32),
            "neighbors": arrays["neighbors"],
            "similarities": arrays["similarities"],
        }
    row = np.repeat(rows, counts[counts > 0])
    if context.self_join:
        # Of a self-join a pair is written once, with the lower number first, wherever the two rows lie.
        row, neighbors = np.minimum(row, neighbors), np.maximum(row, neighbors)
    order = np.argsort(_packed(row, neighbors), kind="stable")
    rows, counts = np.unique(row[order], return_counts=True)
    return {
        "rows": rows.astype(np.uint32),
        "counts": counts.astype(np.uint32),
        "neighbors": neighbors[order].astype(np.uint32),
        "similarities": arrays["similarities"][order],
    }


def _packed(rows: NDArray[np.int64], neighbors: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return one number for each pair that rises with the row, then with the neighbor."""
    return (rows.astype(np.uint64) << np.uint64(32)) | neighbors.astype(np.uint64)


class _Collector(Collector):
    """Which parts hold pairs; the pairs themselves are in the record."""

    def __init__(self, run: Run, record: BlockRecord[Part]) -> None:
        self._run = run
        self._with_pairs: list[str] = []
        self.recorded = self._record = record

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Note a part; return the pieces of a tile that was given up."""
        if "overflowed" in part.arrays:
            return list(pieces(TileBlock(RowBlock(0, task.tile.rows.rows), RowBlock(0, task.tile.columns.rows))))
        # Without pairs it has no first and last row, by which ``merged_pairs`` passes over parts.
        if len(part.arrays["rows"]):
            self._with_pairs.append(str(task))
        return ()

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...]:
        """Write ``pairs.parquet``."""
        run, ids = self._run, self._run.ids()
        # A pair takes 8 bytes in a part.
        check_room([(run.folders.result, int(self._record.size_bytes() / 8 * output.pair_bytes(ids)))])
        chunks = merged_pairs(self._record, self._with_pairs, run.queries.rows, throttle.add)
        return (output.write_pairs(run.folders.result, chunks, ids),)


def merged_pairs(
    record: BlockRecord[Part], names: Sequence[str], rows: int, on_rows: Callable[[int], None]
) -> Iterator[output.PairChunk]:
    """Merge the parts of these names, about ``PAIRS_GROUP`` pairs at a time, sorted by row and neighbor.

    One part is open at a time, and only the pairs that are merged are copied out of it: a large matrix has more parts
    than a process may have open files.
    """
    counts, bounds = np.zeros(rows, dtype=np.int64), []
    for name in names:
        arrays = record.load(name, mapped_bytes=0).arrays
        # A part names each row once: of an index that came twice, NumPy would add the last alone.
        counts[arrays["rows"]] += arrays["counts"]
        bounds.append((int(arrays["rows"][0]), int(arrays["rows"][-1])))
    before = np.concatenate([[0], np.cumsum(counts)])
    start = 0
    while start < rows:
        full = int(np.searchsorted(before, before[start] + output.PAIRS_GROUP, side="right")) - 1
        # A row's pairs stay together, however many they are.
        stop = min(max(start + 1, full), rows)
        parts = [
            _pairs_between(record, name, start, stop)
            for name, (first, last) in zip(names, bounds, strict=True)
            if first < stop and start <= last
        ]
        if parts:
            row, neighbor, similarity = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            # Stable: each part is sorted, and merging sorted runs is what that sort is fast at.
            order = np.argsort(_packed(row, neighbor), kind="stable")
            yield row[order].astype(np.int64), neighbor[order].astype(np.int64), similarity[order]
        on_rows(stop - start)
        start = stop


def _pairs_between(record: BlockRecord[Part], name: str, start: int, stop: int) -> tuple[NDArray[Any], ...]:
    arrays = record.load(name, mapped_bytes=0).arrays
    low, high = np.searchsorted(arrays["rows"], [start, stop]).tolist()
    first = int(arrays["counts"][:low].sum())
    counts = arrays["counts"][low:high]
    some = slice(first, first + int(counts.sum()))
    row = np.repeat(arrays["rows"][low:high], counts)
    # Copies, so that the file of the part is closed on return: a view would keep it open.
    return row, arrays["neighbors"][some].copy(), arrays["similarities"][some].copy()

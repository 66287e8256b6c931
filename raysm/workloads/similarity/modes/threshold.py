"""A threshold: all pairs that are similar enough. Parts are recorded, and merged when all are there.

A part names pairs by numbers: ``rows[u]``, rising, ``counts[u]`` of each, and ``neighbors[n]`` and ``similarities[n]``
of one row after the other, neighbors rising. So whoever merges parts need not know where a row lies.
"""

from collections.abc import Callable, Sequence
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
from raysm.workloads.similarity.modes.merged_pairs import merged_pairs, packed
from raysm.workloads.similarity.modes.mode import Collector, Mode, Tiling
from raysm.workloads.similarity.modes.owned.threshold import OwnedPairs
from raysm.workloads.similarity.modes.threshold_tile import again, threshold_tile
from raysm.workloads.similarity.owning.owned import Owned
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

    def owned(self, run: Run, tiles: Tiling, sizing: Sizing) -> Owned:
        """Return how instances own ranges of rows."""
        return OwnedPairs(self_join=run.context.self_join)

    def gathering_seconds(self, matrix: Matrix, scratch: Path, sizing: Sizing) -> float:
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
    order = np.argsort(packed(row, neighbors), kind="stable")
    rows, counts = np.unique(row[order], return_counts=True)
    return {
        "rows": rows.astype(np.uint32),
        "counts": counts.astype(np.uint32),
        "neighbors": neighbors[order].astype(np.uint32),
        "similarities": arrays["similarities"][order],
    }


class _Collector(Collector):
    """Which parts hold pairs; the pairs themselves are in the record."""

    def __init__(self, run: Run, record: BlockRecord[Part]) -> None:
        self._run = run
        self._with_pairs: list[str] = []
        self.recorded = self._record = record

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Note a part; return the pieces of a tile that was given up."""
        if pieces := again(task.tile, part.arrays):
            return pieces
        # Without pairs it has no first and last row, by which ``merged_pairs`` passes over parts.
        if len(part.arrays["rows"]):
            self._with_pairs.append(str(task))
        return ()

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...]:
        """Write ``pairs.parquet``."""
        run, ids = self._run, self._run.ids()
        # A pair takes 8 bytes in a part.
        check_room([(run.folders.result, int(self._record.size_bytes() / 8 * output.pair_bytes(ids)))])
        chunks = merged_pairs(self._record, self._with_pairs, RowBlock(0, run.queries.rows), throttle.add)
        return (output.write_pairs(run.folders.result, chunks, ids),)

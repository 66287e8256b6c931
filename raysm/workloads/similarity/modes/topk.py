"""Top-k: the k most similar rows of each. Parts hold keys, the head merges them as they come.

Where there are many parts, they are merged before they come to the head: those of neighboring tiles in the task that
makes them (``Sizing.triangle_rows``), those of many tasks on the instances (``partial_merge``).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.errors import InvalidInput
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import TileBlock
from raysm.workloads.gather import check_room, free_bytes
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.arithmetic.topk_accumulator import TopKAccumulator, zero_row_keys
from raysm.workloads.similarity.modes.mode import Collector, Mode, Tiling
from raysm.workloads.similarity.modes.owned.topk import OwnedTopK
from raysm.workloads.similarity.modes.partial_merge import TileGroups, groups_of
from raysm.workloads.similarity.modes.topk_tile import TileBounds, topk_tile
from raysm.workloads.similarity.owning.owned import Owned
from raysm.workloads.similarity.reading.ids import gather
from raysm.workloads.similarity.reading.matrix import Described, Matrix
from raysm.workloads.similarity.runs import Folders, Run
from raysm.workloads.similarity.sizing.footprint import PART_BYTES
from raysm.workloads.similarity.sizing.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import FreeTile, TileTask

__all__ = ["TopK"]

ROW_S, KEY_S = 0.15e-6, 0.02e-6
"""What a row of a part costs whoever takes it in, and each of its k keys.

Measured on two cores with AMX, merged and recorded: with k = 10, a row costs 0.13 us where 0.2 of its keys reach the
lower bounds, 0.25 us where 2 do, 0.57 us where all do, which is so until the first bounds are known; with k = 100, 1.1,
1.9 and 3.8 us. A third to two thirds of it is the record, which is digested and synchronised to the disk."""

WRITTEN_KEYS = 4 << 20
"""Keys that are written to learn how long the result takes."""


@dataclass(frozen=True, slots=True)
class TopK(Mode):
    """The k most similar rows of each."""

    name: ClassVar[str] = "topk"

    k: int
    """How many."""

    @classmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if a number of neighbors is asked for."""
        return None if workload.top_k is None else cls(workload.top_k)

    @property
    def limits(self) -> PartLimits:
        """A part holds k keys, of 8 bytes each, of its rows and of as many columns."""
        most = max(1, PART_BYTES // (16 * self.k))
        return PartLimits(rows=most, joined_row_s=ROW_S + KEY_S * self.k, neighbors=self.k)

    def check(self, queries: Described, matrix: Described) -> None:
        """Raise ``InvalidInput`` where there are not so many neighbors."""
        if queries is not matrix and self.k > matrix.rows:
            raise InvalidInput(
                f"{self.k} neighbors of each row are more than the {matrix.rows} rows of the matrix; ask for fewer"
            )
        # By identity: queries may be other rows of the very same shape, and then each row may find its like.
        if queries is matrix and self.k > matrix.rows - 1:
            raise InvalidInput(
                f"{self.k} neighbors of each row are more than the {matrix.rows - 1} other rows of a matrix of "
                f"{matrix.rows}; ask for fewer"
            )

    def check_room(
        self,
        queries: Described,
        matrix: Described,
        folders: Folders,
        scratch: Path,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """See ``Mode``. The record is at least the k keys of each row once, and about ``1 + log(blocks)`` times that.

        A disk that is full for it is said when it is.
        """
        rows, k = queries.rows, self.k
        keys = rows * k * 8
        # Neighbors' ids by their mean: how often each of them is named shows only in the result.
        ids = math.ceil(queries.id_bytes + rows * k * matrix.id_bytes / matrix.rows)
        # Of each neighbor its number, its score, and a bit that says where a list begins; of each row its number.
        output = rows * (12 * k + k // 8 + 9) + ids
        check_room(
            [
                (folders.records, keys - occupied_bytes(folders.records)),
                (scratch, keys),
                (folders.result, output),
            ],
            free,
        )

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Return the keys of a tile's rows, and of its columns where it serves them."""
        return topk_tile(context, self.k, task)

    def collect(self, run: Run, tiles: Tiling, record: BlockRecord[Any], sizing: Sizing) -> Collector:
        """Begin with nobody known of any row."""
        return _Collector(self, run, tiles, record, sizing.max_tile_rows())

    def owned(self, run: Run, tiles: Tiling, sizing: Sizing) -> Owned:
        """Return how instances own ranges of rows."""
        # By their places; the order of the rows says their numbers.
        zero = run.context.queries.norms == 0
        numbers = [
            np.flatnonzero(zero[one.offset : one.offset + one.rows]) + one.start
            for one in tiles.row_order.between(0, run.queries.rows)
        ]
        return OwnedTopK(
            k=self.k,
            self_join=run.context.self_join,
            max_tile_rows=sizing.max_tile_rows(),
            zero_rows=np.concatenate(numbers),
        )

    def groups(
        self, run: Run, tiles: Sequence[FreeTile], record: BlockRecord[Any], sizing: Sizing
    ) -> TileGroups | None:
        """Return the groups in which the parts of a self-join are merged on the instances."""
        return groups_of(self.k, run.context, tiles, record, sizing)

    def probe(
        self, context: Context, both: TileBlock, scratch: Path, seconds: Callable[[Callable[[], object]], float]
    ) -> tuple[float, float, float]:
        """Measure tiles as ``Mode`` says; the one beside the diagonal is told the bounds that the diagonal found."""
        accumulator = TopKAccumulator(scratch, both.columns.stop, self.k)
        try:
            for cut in (both.rows, both.columns):
                arrays = self.compare(context, _task(accumulator, TileBlock(cut, cut)))
                # Both blocks with themselves, as a run has done before it comes to tiles beside the diagonal.
                accumulator.merge(cut, arrays["counts"], arrays["keys"])
            # As the first tile of a run has it: nobody is known yet.
            untold = TileBounds(np.full(both.rows.rows, -np.inf, dtype=np.float32), np.empty(0, dtype=np.float32))
            first, beside = FreeTile(TileBlock(both.rows, both.rows), True, untold), _task(accumulator, both)
            diagonal_s = seconds(lambda: self.compare(context, first))
            beside_s = seconds(lambda: self.compare(context, beside))
            part = self.compare(context, beside)
            return diagonal_s, beside_s, seconds(lambda: _merge(accumulator, both, part))
        finally:
            accumulator.close()

    def gathering_seconds(self, matrix: Matrix, scratch: Path, sizing: Sizing) -> float:
        """Write some rows of the result."""
        k = min(self.k, matrix.rows - 1)
        rows = min(matrix.rows, max(1, WRITTEN_KEYS // k))
        rng = np.random.default_rng(0)
        scores = np.sort(rng.random((rows, k), dtype=np.float32), axis=1)[:, ::-1].copy()
        keys = encode(scores, rng.integers(0, matrix.rows, (rows, k)))
        ids = gather(matrix, matrix)
        begin = time.perf_counter()
        output.write_neighbors(scratch, lambda start, stop: keys[start:stop], k, rows, lambda done: None, ids)
        return (time.perf_counter() - begin) * matrix.rows / rows


def _task(accumulator: TopKAccumulator, tile: TileBlock) -> FreeTile:
    task = FreeTile(tile, self_join=True)
    return FreeTile(tile, True, _bounds(accumulator, task, None))


def _bounds(accumulator: TopKAccumulator, task: TileTask, max_tile_rows: int | None) -> TileBounds:
    lower_bounds, tile = accumulator.lower_bounds, task.tile
    columns = lower_bounds[tile.columns.start : tile.columns.stop] if task.mirrored else lower_bounds[:0]
    # Copied: Ray takes the value later, and the bounds rise meanwhile.
    return TileBounds(lower_bounds[tile.rows.start : tile.rows.stop].copy(), columns.copy(), max_tile_rows)


def _merge(accumulator: TopKAccumulator, tile: TileBlock, arrays: Any) -> None:
    accumulator.merge(tile.rows, arrays["counts"], arrays["keys"])
    if "column_counts" in arrays:
        accumulator.merge(tile.columns, arrays["column_counts"], arrays["column_keys"])


class _Collector(Collector):
    """The best k of every row so far, by the rows' places; the keys hold numbers in the matrix."""

    def __init__(self, mode: TopK, run: Run, tiles: Tiling, record: BlockRecord[Part], max_tile_rows: int) -> None:
        self._run, self._k, self._max_tile_rows = run, mode.k, max_tile_rows
        self._order = tiles.row_order
        # In the scratch, not among the records: another run merges it anew from the parts, which are recorded.
        self._accumulator = TopKAccumulator(run.scratch, run.queries.rows, mode.k)
        self.recorded = record

    def hint(self, task: TileTask) -> TileBounds:
        """Return the lower bounds that are known by now."""
        return _bounds(self._accumulator, task, self._max_tile_rows)

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Merge a part's keys."""
        _merge(self._accumulator, task.tile, part.arrays)
        return ()

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...]:
        """Write ``neighbors.parquet``."""
        run = self._run
        return (
            output.write_neighbors(run.folders.result, self._keys, self._k, run.queries.rows, throttle.add, run.ids()),
        )

    def _keys(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return keys[stop - start, k] of the rows with these numbers."""
        context, keys = self._run.context, np.empty((stop - start, self._k), dtype=np.uint64)
        # Keys lie by the rows' places, the file has them by their numbers.
        for run in self._order.between(start, stop):
            some = keys[run.start - start : run.start - start + run.rows]
            some[:] = self._accumulator.read(run.offset, run.offset + run.rows)
            # No task looks for neighbors of a zero row: they follow from its number.
            zero = np.flatnonzero(context.queries.norms[run.offset : run.offset + run.rows] == 0)
            some[zero] = zero_row_keys(zero + run.start, self._k, same=context.self_join)
        return keys

    def close(self) -> None:
        """Close the file of the keys, which is gone then."""
        self._accumulator.close()

"""The full matrix: all scores, written into one file as they come.

Where rows lie whole everywhere, tasks compute strips of whole rows, each one piece of the file (``_Strips``). The lower
half is the upper one's mirror image, but a file that is written in order has it elsewhere: it would have to be kept in
memory, a quarter of the matrix, or be read back in pieces of some kilobytes. On two cores, of 50,000 rows of 128
columns, that took 102 s and this 32; the scores cost 17 s of one core for each half. Where rows are sharded, the tiles
come from where their rows meet, and each is written to the places that it has in the matrix (``_Tiles``).

The file grows beside its place in the result, which is uploaded once, at the end. Among the checkpoints the service
would upload it again each time that it has changed: there is, where anything lasts, a file for each finished task,
which never changes. That writes each score twice; without it a job begins anew when its head is lost. Where the
cluster computes a score sooner than it would come back, to begin anew is the quicker way, and no part is kept
(``Full.is_worth_keeping``).

Measured on two cores, of 12,000 rows, 576 MB, in seconds until the file is there:

    columns                128    512   1024
    without parts          1.6    3.9    8.2
    with parts             2.1    4.4    9.2
    gone on with at 90 %   0.8    1.1    1.6

The disk there is a local one, of more than 1 GB/s, and the head had nothing to compute for others.
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.contract.store import Unfinished
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock, row_blocks
from raysm.workloads.gather import ArrayFile, PrefixDigest, check_room, free_bytes
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.row_order import Run as Consecutive
from raysm.workloads.similarity.arithmetic.row_order import consecutive, rectangles
from raysm.workloads.similarity.modes.mode import Collector, Mode, Tiling
from raysm.workloads.similarity.modes.owned.full import OwnedFull, numbers_of
from raysm.workloads.similarity.owning.owned import Owned
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.reading.matrix import Described, Matrix
from raysm.workloads.similarity.reading.npy import header
from raysm.workloads.similarity.runs import Folders, Run
from raysm.workloads.similarity.sizing.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import engine_cache_of
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import FreeTile, TileTask
from raysm.workloads.stream import Stream

__all__ = ["Full", "full_tile"]

TILE_SIDE = 2048
"""Most rows and columns of a tile: 4 bytes for each of its entries travel."""

SCORE_S = 8e-11
"""What one element of a pair costs a slot, about: measured on two cores with AVX-512, of 128 to 512 columns."""

KEPT_BYTE_S = 8e-9
"""What a byte of a part that is kept costs until it is back: it is written once more now, and once more when the
service brings it. A general-purpose volume (gp2), all that SageMaker has beside instances' own disks, takes 250 MB/s at
most: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html. The way to S3 and back, which was not seen
on AWS, is not counted."""

DISK_BYTES = 256 << 20
"""Written to learn the disk's rate."""


@dataclass(frozen=True, slots=True)
class Full(Mode):
    """All scores."""

    name: ClassVar[str] = "full"
    without_gpus: ClassVar[str] = "the full matrix is written as fast by CPUs"
    in_strips: ClassVar[bool] = True

    dtype: Literal["float32", "float16"]
    """Of the scores; float16 is the float32 score, rounded."""

    @classmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if all scores are asked for."""
        return cls(workload.dtype) if workload.full else None

    @property
    def limits(self) -> PartLimits:
        """A tile's scores all travel."""
        # Of a tile; strips are cut by ``tiles`` itself, by what fits into a part.
        return PartLimits(rows=TILE_SIDE)

    def check_room(
        self,
        queries: Described,
        matrix: Described,
        folders: Folders,
        scratch: Path,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """See ``Mode``: the file grows where the result is; what lasts of it has a room of its own."""
        size = queries.rows * matrix.rows * np.dtype(self.dtype).itemsize
        # Once more among the checkpoints, but for what an earlier run has left there.
        recorded = size - occupied_bytes(folders.records) if folders.lasting else 0
        check_room([(folders.result, size), (folders.records, recorded)], free)

    def is_worth_keeping(self, matrix: Described, slots: int, writers: int = 1) -> bool:
        """See ``Mode``: with the columns grows what a score costs, and not what it takes to keep it."""
        # Not its columns: of sparse rows only the elements that they have are compared.
        score_s = matrix.elements / matrix.rows * SCORE_S / slots
        return score_s > np.dtype(self.dtype).itemsize * KEPT_BYTE_S / writers

    def record(self, run: Run, kind: str) -> BlockRecord[Any]:
        """Return where finished tasks are kept, which are in the file already."""
        return run.record(kind, for_later=True)

    def tiles(self, sizing: Sizing, record: BlockRecord[Any], *, self_join: bool) -> list[FreeTile]:
        """Return strips of whole rows, top down; of owned ones range by range in turn.

        Each pair is computed in both of its rows' strips.
        """
        most = sizing.strip_rows(record, sizing.matrix.rows * np.dtype(self.dtype).itemsize)
        columns = RowBlock(0, sizing.matrix.rows)
        ranges = Ranges.even(sizing.queries.rows, sizing.chosen_ranges)
        starts = [
            (start - rows.start, start, rows.stop) for rows in ranges for start in range(rows.start, rows.stop, most)
        ]
        # Of each range in turn, so that all owners have something to write from the beginning on.
        cuts = [RowBlock(start, min(start + most, stop)) for _, start, stop in sorted(starts)]
        # Never as a self-join: a strip serves its own rows alone, and has no mirror image that would be written too.
        return [FreeTile(TileBlock(cut, columns), self_join=False) for cut in cuts]

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Return ``scores[rows, columns]``."""
        return {"scores": full_tile(context, self.dtype, task.tile, task.hint)}

    def collect(self, run: Run, tiles: Tiling, record: BlockRecord[Any], sizing: Sizing) -> Collector:
        """Open the file."""
        if tiles.in_strips:
            return _Strips(self, run, record, sizing.max_tile_rows())
        return _Tiles(self, run, tiles, record)

    def owned(self, run: Run, tiles: Tiling, sizing: Sizing) -> Owned:
        """Return how instances own ranges of rows."""
        return OwnedFull(columns=run.matrix.rows, dtype=self.dtype, max_tile_rows=sizing.max_tile_rows())

    def gathering_seconds(self, matrix: Matrix, scratch: Path, sizing: Sizing) -> float:
        """Return how long a disk takes for all that is written."""
        return self.written_bytes(matrix, sizing.slots, sizing.writers) / _disk_rate(scratch)

    def written_bytes(self, matrix: Described, slots: int, writers: int = 1) -> int:
        """Return the bytes of the whole result, and of the parts that a Training job keeps beside it."""
        # Once among the parts, once into the file.
        times = 2 if self.is_worth_keeping(matrix, slots, writers) else 1
        return times * matrix.rows**2 * np.dtype(self.dtype).itemsize


def full_tile(
    context: Context, dtype: Literal["float32", "float16"], tile: TileBlock, max_tile_rows: int | None = None
) -> NDArray[np.float32] | NDArray[np.float16]:
    """Return scores[rows, columns] of the tile; float16 is the float32 score, rounded.

    Args:
        context: What the tasks know.
        dtype: Of the scores.
        tile: Which pairs.
        max_tile_rows: Most rows of the matrix that are read at once, for the columns of a tile that is longer; None is
            all.
    """
    cache = engine_cache_of(context)
    left, first = cache.tile(tile.rows, queries=True), tile.columns.start
    scores = np.empty((len(left), tile.columns.rows), dtype=dtype)
    for cut in row_blocks(tile.columns.rows, max_tile_rows or max(1, tile.columns.rows)):
        right = cache.tile(RowBlock(first + cut.start, first + cut.stop))
        # Into its place: pieces that are joined at the end would take the memory of the strip twice.
        cache.engine.scores(left, right, scores[:, cut.start : cut.stop])
    return scores


class _Written(Collector):
    """What both ways to write the file have in common."""

    def __init__(self, mode: Full, run: Run, record: BlockRecord[Part]) -> None:
        self.recorded = record if run.folders.lasting else None
        self._run, self._dtype = run, np.dtype(mode.dtype)
        self._rows, self._columns = run.queries.rows, run.matrix.rows
        self._head = header((self._rows, self._columns), self._dtype)
        self._target = run.folders.result / output.SIMILARITY
        # Not in the scratch: to rename a file from one mount to another is to copy it, also on one disk.
        self._file = Unfinished(self._target)

    def _placed(self, sha256: str) -> tuple[ResultFile, ...]:
        """Give the file, all of whose scores are written, its name; write the ids beside it."""
        self._file.place()
        target = self._target
        file = ResultFile(
            name=target.name,
            shape=(self._rows, self._columns),
            units=("rows", "columns"),
            bytes=target.stat().st_size,
            sha256=sha256,
            how_to_read=f'import numpy; scores = numpy.load("{target.name}", mmap_mode="r")',
        )
        return (file, *output.write_ids_beside(target.parent, self._run.ids()))


class _Strips(_Written):
    """Whole rows, which come about in order: they are digested on the way, and never read back."""

    def __init__(self, mode: Full, run: Run, record: BlockRecord[Part], max_tile_rows: int) -> None:
        super().__init__(mode, run, record)
        self._max_tile_rows = max_tile_rows
        self._row_bytes = self._columns * self._dtype.itemsize
        self._stream = Stream(self._file.beside, self._head, len(self._head) + self._rows * self._row_bytes)

    def hint(self, task: TileTask) -> int:
        """Return how many columns are read at once."""
        return self._max_tile_rows

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Write a strip."""
        # As it lies in memory: a strip is as large as a part may be, and not copied on its way to the disk.
        scores = part.arrays["scores"].data.cast("B")
        self._stream.put(len(self._head) + task.tile.rows.start * self._row_bytes, scores)
        return ()

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...]:
        """Wait for the disk, and place the file."""
        files = self._placed(self._stream.finish())
        throttle.reach(self._rows)
        return files

    def close(self) -> None:
        """Close the file; remove it if it is not whole."""
        self._stream.close()
        self._file.remove()


class _Tiles(_Written):
    """Rectangles from wherever their rows lie; of a self-join, each with its mirror image."""

    def __init__(self, mode: Full, run: Run, tiles: Tiling, record: BlockRecord[Part]) -> None:
        super().__init__(mode, run, record)
        self._array = ArrayFile(self._file.beside, self._head, self._rows, self._columns, self._dtype)
        self._digest = PrefixDigest(self._file.beside)
        self._unfinished = Counter(block for task in tiles.tasks for block in _written_rows(task))
        # Whichever task comes last: the rows of a block are numbered alike in all of them.
        blocks = {block: task for task in tiles.tasks for block in _written_rows(task)}
        # The rows that are still to come, by their numbers: the file is digested up to the first of them.
        self._to_come = sorted(
            (run.start, block.start, block) for block, task in blocks.items() for run in _runs_of(task, block)
        )

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Write a tile, and digest the rows that are whole now."""
        scores = part.arrays["scores"]
        for block, above, beside in rectangles(*numbers_of(task)):
            self._array.write(block, scores[above, beside])
            if task.mirrored:
                self._array.write(block, scores[above, beside], mirrored=True)
        self._unfinished.subtract(_written_rows(task))
        before = len(self._to_come)
        while self._to_come and not self._unfinished[self._to_come[0][2]]:
            self._to_come.pop(0)
        # Where nothing is to come any more, ``gather`` asks for the rest, and waits for it.
        if self._to_come and len(self._to_come) < before:
            self._digest.reach(self._array.position(self._to_come[0][0], 0))
        return ()

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...]:
        """Digest the rest, and place the file."""
        self._digest.reach(self._array.position(self._rows, 0))
        sha256 = self._digest.finish()
        self._array.close()
        files = self._placed(sha256)
        throttle.reach(self._rows)
        return files

    def close(self) -> None:
        """Close the file; remove it if it is not whole."""
        self._digest.close()
        # Where the disk is full, what made it so is being raised.
        with suppress(OSError):
            self._array.close()
        self._file.remove()


def _written_rows(task: TileTask) -> set[RowBlock]:
    """Return the blocks of rows of the file that a task writes into; of a self-join, columns are rows too."""
    return {task.tile.rows, task.tile.columns} if task.mirrored else {task.tile.rows}


def _runs_of(task: TileTask, block: RowBlock) -> Iterator[Consecutive]:
    return _consecutive(task.row_numbers if block == task.tile.rows else task.column_numbers, block)


def _consecutive(numbers: Callable[[NDArray[np.int64]], NDArray[np.int64]], block: RowBlock) -> Iterator[Consecutive]:
    """Return the rows of a block in runs of consecutive numbers; offsets count from the block's first row."""
    return consecutive(numbers(np.arange(block.start, block.stop)))


def _disk_rate(folder: Path) -> float:
    """Return how many bytes a second the disk takes."""
    block = np.random.default_rng(0).bytes(8 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        begin = time.perf_counter()
        for _ in range(DISK_BYTES // len(block)):
            file.write(block)
        file.flush()
        # Else it would be the rate of the page cache.
        os.fsync(file.fileno())
        return DISK_BYTES / (time.perf_counter() - begin)

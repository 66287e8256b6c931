"""The full matrix: all scores, written to the disk as they come.

Where every instance has all rows, tasks compute strips of whole rows, each one piece of the file. The lower half is the
upper one's mirror image, but a file that is written in order has it elsewhere: it would have to be kept in memory, a
quarter of the matrix, or be read back in pieces of some kilobytes. On two cores, of 50,000 rows of 128 columns, that
took 102 s and this 32; the scores cost 17 s of one core for each half. Where rows are sharded, the tiles come from
where their rows meet, and each is written to the places that it has in the matrix, with its mirror image.

The file grows beside its place in the result, which is uploaded once, at the end. Among the checkpoints the service
would upload it again each time that it has changed. So, where anything lasts, each finished task is a file there, which
never changes. That writes each score twice; without it a job starts over when its head is lost. Where the cluster
computes a score sooner than it would come back, no task is kept (``Full.is_worth_keeping``).

A piece has the scores of a rectangle: ``rows`` and ``columns``, the numbers of both, rising, and ``scores[rows,
columns]``. Of a tile that serves its columns too the mirror image stands beside it, named ``mirrored_rows`` and so on.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
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
from raysm.workloads.disk import Stream
from raysm.workloads.gather import ArrayFile, PrefixDigest
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.tiling import rectangles
from raysm.workloads.similarity.modes.mode import Mode, OwnedRange, Piece, RangeMerger, Ranges, numbers_of
from raysm.workloads.similarity.reading.arrays import header
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.reading.matrix import Described
from raysm.workloads.similarity.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context, engine_cache_of
from raysm.workloads.similarity.tasks.parts import Part, TileTask

TILE_SIDE = 2048
"""Most rows and columns of a tile: 4 bytes for each of its entries travel."""

SCORE_S = 8e-11
"""Seconds of a slot for one element of a pair: measured on two cores with AVX-512, of 128 to 512 columns."""

KEPT_BYTE_S = 8e-9
"""Seconds that a byte of a kept part costs until it is back: it is written once more now, and once more when the
service brings it. A general-purpose volume (gp2), all that SageMaker has beside instances' own disks, takes 250 MB/s at
most: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""

MIRRORED = "mirrored_"
"""Before the names of the arrays of a tile's mirror image."""


@dataclass(frozen=True, slots=True)
class Full(Mode):
    """All scores."""

    name: ClassVar[str] = "full"
    without_gpus: ClassVar[str] = "the full matrix is written as fast by CPUs"
    in_strips: ClassVar[bool] = True
    for_later: ClassVar[bool] = True

    dtype: Literal["float32", "float16"]
    """Type of the scores; float16 is the float32 score, rounded."""

    @classmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if all scores are asked for."""
        return cls(workload.dtype) if workload.full else None

    @property
    def limits(self) -> PartLimits:
        """A tile's scores all travel; ``tiles`` cuts strips by what fits into a part."""
        return PartLimits(rows=TILE_SIDE)

    def is_worth_keeping(self, matrix: Described, slots: int, writers: int = 1) -> bool:
        """See ``Mode``: what a score costs grows with the elements of a row, and what it takes to keep it does not."""
        score_s = matrix.elements / matrix.rows * SCORE_S / slots
        return score_s > np.dtype(self.dtype).itemsize * KEPT_BYTE_S / writers

    def tiles(self, sizing: Sizing, record: BlockRecord[Any]) -> list[TileTask]:
        """Return strips of whole rows, top down; of several ranges one after the other of each in turn.

        Each pair is computed in both of its rows' strips.
        """
        most = sizing.strip_rows(record, sizing.matrix.rows * np.dtype(self.dtype).itemsize)
        columns = RowBlock(0, sizing.matrix.rows)
        ranges = Ranges.even(sizing.queries.rows, sizing.parts)
        starts = [
            (start - rows.start, start, rows.stop) for rows in ranges for start in range(rows.start, rows.stop, most)
        ]
        cuts = [RowBlock(start, min(start + most, stop)) for _, start, stop in sorted(starts)]
        # Never as a self-join: a strip serves its own rows alone.
        return [TileTask(TileBlock(cut, columns), self_join=False) for cut in cuts]

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Return ``scores[rows, columns]``."""
        return {"scores": full_tile(context, self.dtype, task.tile)}

    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        """Yield the scores of each range."""
        pieces: dict[int, dict[str, NDArray[Any]]] = defaultdict(dict)
        (rows, columns), scores = numbers_of(task), arrays["scores"]
        for at, some in ranges.of(rows):
            pieces[at] |= {"rows": rows[some], "columns": columns, "scores": scores[some]}
        if task.mirrored:
            for at, some in ranges.of(columns):
                # Turned here, where many tasks do it at once, and not by the one owner.
                turned = np.ascontiguousarray(scores[:, some].T)
                sides = {"rows": columns[some], "columns": rows, "scores": turned}
                pieces[at] |= {MIRRORED + name: values for name, values in sides.items()}
        yield from pieces.items()

    def merger(self, owned: OwnedRange, folder: Path, scratch: Path, record: BlockRecord[Part]) -> RangeMerger:
        """Start a file without any score."""
        kind = _Strips if owned.in_strips else _Tiles
        return kind(owned, np.dtype(self.dtype), folder)

    def write_beside(self, folder: Path, ids: Ids | None) -> tuple[ResultFile, ...]:
        """Write the ids: the matrix has no place for them."""
        return output.write_ids_beside(folder, ids)


def full_tile(
    context: Context, dtype: Literal["float32", "float16"], tile: TileBlock
) -> NDArray[np.float32] | NDArray[np.float16]:
    """Return scores[rows, columns] of the tile; float16 is the float32 score, rounded."""
    cache = engine_cache_of(context)
    left, first = cache.tile(tile.rows, queries=True), tile.columns.start
    scores = np.empty((len(left), tile.columns.rows), dtype=dtype)
    for cut in row_blocks(tile.columns.rows, context.operand_rows or max(1, tile.columns.rows)):
        right = cache.tile(RowBlock(first + cut.start, first + cut.stop))
        # Into its place: pieces that are joined at the end would take the memory of the strip twice.
        cache.engine.scores(left, right, scores[:, cut.start : cut.stop])
    return scores


class _Merger(RangeMerger):
    """The file of one range, which grows beside its place."""

    def __init__(self, owned: OwnedRange, dtype: np.dtype[Any], folder: Path) -> None:
        self._owned, self._rows, self._columns, self._dtype = owned, owned.rows, owned.columns, dtype
        self._head = header((self._rows.rows, self._columns), dtype)
        self._row_bytes = self._columns * dtype.itemsize
        self.result_bytes = self.recorded_bytes = len(self._head) + self._rows.rows * self._row_bytes
        target = owned.path(folder, output.SIMILARITY, ".npy")
        # An owner of this range that was killed on this instance left what it had written, without a name.
        for torn in target.parent.glob(f".{target.name}.*"):
            torn.unlink(missing_ok=True)
        # Not in the scratch: to rename a file from one mount to another is to copy it, also on one disk.
        self._target, self._file = target, Unfinished(target)
        self._placed: ResultFile | None = None

    def write(self, ids: Ids | None, on_rows: Callable[[int], None]) -> ResultFile:
        """Wait for the disk, and give the file its name."""
        # Asked again, since another owner was lost meanwhile, it is there.
        if self._placed is None:
            sha256 = self._finish()
            self._file.place()
            name = str(self._owned.path(Path(), output.SIMILARITY, ".npy"))
            self._placed = ResultFile(
                name=name,
                shape=(self._rows.rows, self._columns),
                units=("rows", "columns"),
                bytes=self._target.stat().st_size,
                sha256=sha256,
                how_to_read=f'import numpy; scores = numpy.load("{name}", mmap_mode="r")',
            )
            on_rows(self._rows.rows)
        return self._placed

    def _finish(self) -> str:
        """Wait until all is on the disk; return the digest."""
        raise NotImplementedError


class _Strips(_Merger):
    """Whole rows, which come about in order: they are digested on the way, and never read back."""

    def __init__(self, owned: OwnedRange, dtype: np.dtype[Any], folder: Path) -> None:
        super().__init__(owned, dtype, folder)
        self._stream = Stream(self._file.beside, self._head, self.result_bytes)

    def take(self, name: str, piece: Piece) -> None:
        """Write a strip."""
        # As it lies in memory: a strip is as large as a part may be, and not copied on its way to the disk.
        start = len(self._head) + (int(piece["rows"][0]) - self._rows.start) * self._row_bytes
        self._stream.put(start, np.ascontiguousarray(piece["scores"]).data.cast("B"))

    def _finish(self) -> str:
        return self._stream.finish()

    def close(self) -> None:
        """Close the file; remove it if it is not whole."""
        self._stream.close()
        self._file.remove()


class _Tiles(_Merger):
    """Rectangles from wherever their rows lie; the file is digested up to the first row that is not whole yet."""

    def __init__(self, owned: OwnedRange, dtype: np.dtype[Any], folder: Path) -> None:
        super().__init__(owned, dtype, folder)
        self._array = ArrayFile(self._file.beside, self._head, self._rows.rows, self._columns, dtype)
        self._digest = PrefixDigest(self._file.beside)
        self._written = np.zeros(self._rows.rows, dtype=np.int64)
        """Scores of each row that are written."""
        self._whole = 0
        """Rows from the first on that have all of them."""

    def take(self, name: str, piece: Piece) -> None:
        """Write a piece, and digest the rows that are whole now."""
        for side in ("", MIRRORED):
            if f"{side}scores" in piece:
                own_rows, columns = piece[f"{side}rows"] - self._rows.start, piece[f"{side}columns"]
                for block, above, beside in rectangles(own_rows, columns):
                    self._array.write(block, piece[f"{side}scores"][above, beside])
                self._written[own_rows] += len(columns)
        missing = self._written[self._whole :] < self._columns
        self._whole += int(missing.argmax()) if missing.any() else len(missing)
        self._digest.reach(self._array.position(self._whole, 0))

    def _finish(self) -> str:
        sha256 = self._digest.finish()
        self._array.close()
        return sha256

    def close(self) -> None:
        """Close the file; remove it if it is not whole."""
        self._digest.close()
        # Where the disk is full, what made it so is being raised.
        with suppress(OSError):
            self._array.close()
        self._file.remove()

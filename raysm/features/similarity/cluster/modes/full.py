"""The full matrix: all scores, written to the disk as they come.

If every instance has all rows, tasks compute strips of whole rows, each one piece of the file. The
lower half of the matrix is the mirror image of the upper half, but using that while writing the
file in order would mean to hold a quarter of the matrix in memory, or to read it back in pieces of
some kilobytes. For 50,000 rows of 128 columns on two cores, that took 102 s instead of 32 s; each
half of the scores costs 17 s of one core. If rows are sharded, each tile is computed on an instance
that has its rows, and written to its place in the matrix together with its mirror image.

The file grows in the folder of the result, which is uploaded once, at the end. In the folder of
checkpoints, the service would upload it again after each change. So if records last, each finished
task is a file of its own there, which never changes. That writes each score twice, but without it a
job starts over when its head is lost. If the cluster computes a score faster than it could be
downloaded again, no task is recorded (``Full.is_worth_keeping``).

A piece has the scores of a rectangle: ``rows`` and ``columns``, the numbers of both, rising, and
``scores[rows, columns]``. The piece of a mirrored tile also has its mirror image, as
``mirrored_rows`` and so on. The matrix has no columns for ids, so they are in files of their own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.core.protocol.result import IDS, QUERY_IDS, ResultFile
from raysm.core.protocol.store import Unfinished, sha256_of
from raysm.features.similarity.cluster.modes.mode import (
    GROUP_ROWS,
    Mode,
    OwnedRange,
    Piece,
    RangeMerger,
    Ranges,
    numbers_of,
    required_schema,
    searched_columns,
)
from raysm.features.similarity.cluster.reading.arrays import header
from raysm.features.similarity.cluster.reading.columns import Ids, as_array
from raysm.features.similarity.cluster.reading.matrix import MatrixInfo
from raysm.features.similarity.cluster.tasks import Context, Part, TileTask, get_engine_cache
from raysm.features.similarity.cluster.tiling import PartLimits, Sizing, rectangles
from raysm.features.similarity.request import Similarity
from raysm.instance.work.disk import Stream
from raysm.instance.work.gather import ArrayFile
from raysm.instance.work.parquet import write_parquet
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.row_blocks import RowBlock, TileBlock, row_blocks

SIMILARITY = "similarity"
"""Name of the result: of its one file, without a suffix, or of the folder of its parts."""

TILE_SIDE = 2048
"""Most rows and columns of a tile: each entry is sent as 4 bytes."""

SCORE_S = 8e-11
"""Seconds of a slot for one element of a pair: measured on two cores with AVX-512, with 128 to 512
columns."""

KEPT_BYTE_S = 8e-9
"""Seconds that a byte of a recorded part costs: it is written once now, and once more when the
service downloads it again. A general-purpose volume (gp2), all that SageMaker has beside instances'
own disks, takes 250 MB/s at
most: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""

MIRRORED = "mirrored_"


@dataclass(frozen=True, slots=True)
class Full(Mode):
    name: ClassVar[str] = "full"
    without_gpus: ClassVar[str] = "the full matrix is written as fast by CPUs"
    in_strips: ClassVar[bool] = True
    for_later: ClassVar[bool] = True

    dtype: Literal["float32", "float16"]

    @classmethod
    def from_workload(cls, workload: Similarity) -> Self | None:
        return cls(workload.dtype) if workload.full else None

    @property
    def limits(self) -> PartLimits:
        """All scores of a tile are sent; ``tiles`` cuts strips that fit into a part."""
        return PartLimits(rows=TILE_SIDE)

    def is_worth_keeping(self, matrix: MatrixInfo, slots: int, writers: int = 1) -> bool:
        """See ``Mode``: the cost of a score grows with the elements of a row.

        The cost of recording it does not.
        """
        score_s = matrix.elements / matrix.rows * SCORE_S / slots
        return score_s > np.dtype(self.dtype).itemsize * KEPT_BYTE_S / writers

    def tiles(self, sizing: Sizing, record: BlockRecord[Any]) -> list[TileTask]:
        """Return strips of whole rows, top down, of all ranges in turn.

        Each pair is computed twice.
        """
        most = sizing.strip_rows(record, sizing.matrix.rows * np.dtype(self.dtype).itemsize)
        columns = RowBlock(0, sizing.matrix.rows)
        ranges = Ranges.even(sizing.queries.rows, sizing.parts)
        starts = [
            (start - rows.start, start, rows.stop)
            for rows in ranges
            for start in range(rows.start, rows.stop, most)
        ]
        cuts = [RowBlock(start, min(start + most, stop)) for _, start, stop in sorted(starts)]
        # self_join=False even in a self-join: a strip has the scores of its own rows only.
        return [TileTask(TileBlock(cut, columns), self_join=False) for cut in cuts]

    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        return {"scores": full_tile(context, self.dtype, task.tile)}

    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        pieces: dict[int, dict[str, NDArray[Any]]] = defaultdict(dict)
        rows, columns = numbers_of(task)
        scores = arrays["scores"]
        for at, some in ranges.of(rows):
            pieces[at] |= {"rows": rows[some], "columns": columns, "scores": scores[some]}
        if task.mirrored:
            for at, some in ranges.of(columns):
                # Transpose here, in many tasks at once, and not in the one owner.
                turned = np.ascontiguousarray(scores[:, some].T)
                sides = {"rows": columns[some], "columns": rows, "scores": turned}
                pieces[at] |= {MIRRORED + name: values for name, values in sides.items()}
        yield from pieces.items()

    def merger(
        self, owned: OwnedRange, folder: Path, scratch: Path, record: BlockRecord[Part]
    ) -> RangeMerger:
        kind = _Strips if owned.in_strips else _Tiles
        return kind(owned, np.dtype(self.dtype), folder)

    def write_extra_files(self, folder: Path, ids: Ids | None) -> tuple[ResultFile, ...]:
        if ids is None:
            return ()
        columns = write_ids(folder / IDS, ids.neighbors)
        # The ids of the rows too, if they differ.
        return (
            (columns,)
            if ids.queries is None
            else (columns, write_ids(folder / QUERY_IDS, ids.queries))
        )


def full_tile(
    context: Context, dtype: Literal["float32", "float16"], tile: TileBlock
) -> NDArray[np.float32] | NDArray[np.float16]:
    """Return scores[rows, columns] of the tile; float16 is the float32 score, rounded."""
    cache = get_engine_cache(context)
    left = cache.tile(tile.rows, queries=True)
    first = tile.columns.start
    scores = np.empty((len(left), tile.columns.rows), dtype=dtype)
    for cut in row_blocks(tile.columns.rows, context.operand_rows or max(1, tile.columns.rows)):
        right = cache.tile(RowBlock(first + cut.start, first + cut.stop))
        # The engine writes into the strip: joining pieces at the end would take its memory twice.
        cache.engine.scores(left, right, scores[:, cut.start : cut.stop])
    return scores


class _Merger(RangeMerger):
    def __init__(self, owned: OwnedRange, dtype: np.dtype[Any], folder: Path) -> None:
        self._owned = owned
        self._rows = owned.rows
        self._columns = owned.columns
        self._dtype = dtype
        self._head = header((self._rows.rows, self._columns), dtype)
        self._row_bytes = self._columns * dtype.itemsize
        self.result_bytes = self.recorded_bytes = (
            len(self._head) + self._rows.rows * self._row_bytes
        )
        target = owned.path(folder, SIMILARITY, ".npy")
        # Remove the temporary file of an owner of this range that was killed on this instance.
        for incomplete in target.parent.glob(f".{target.name}.*"):
            incomplete.unlink(missing_ok=True)
        # Not in the scratch folder: a rename from one mount to another copies the file, even on the
        # same disk.
        self._target = target
        self._file = Unfinished(target)
        self._placed: ResultFile | None = None

    def write(self, ids: Ids | None, on_rows: Callable[[int], None]) -> ResultFile:
        """Wait for the disk, and give the file its name."""
        # ``write`` is called again if another owner was lost meanwhile; the file exists then.
        if self._placed is None:
            sha256 = self._finish()
            self._file.place()
            name = str(self._owned.path(Path(), SIMILARITY, ".npy"))
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
        raise NotImplementedError


class _Strips(_Merger):
    def __init__(self, owned: OwnedRange, dtype: np.dtype[Any], folder: Path) -> None:
        super().__init__(owned, dtype, folder)
        self._stream = Stream(self._file.beside, self._head, self.result_bytes)

    def take(self, name: str, piece: Piece) -> None:
        # Write the strip without copying it: it is as large as a part may be.
        start = len(self._head) + (int(piece["rows"][0]) - self._rows.start) * self._row_bytes
        self._stream.put(start, np.ascontiguousarray(piece["scores"]).data.cast("B"))

    def _finish(self) -> str:
        return self._stream.finish()

    def close(self) -> None:
        self._stream.close()
        self._file.remove()


class _Tiles(_Merger):
    def __init__(self, owned: OwnedRange, dtype: np.dtype[Any], folder: Path) -> None:
        super().__init__(owned, dtype, folder)
        self._array = ArrayFile(
            self._file.beside, self._head, self._rows.rows, self._columns, dtype
        )

    def take(self, name: str, piece: Piece) -> None:
        for side in ("", MIRRORED):
            if f"{side}scores" in piece:
                own_rows = piece[f"{side}rows"] - self._rows.start
                columns = piece[f"{side}columns"]
                for block, above, beside in rectangles(own_rows, columns):
                    self._array.write(block, piece[f"{side}scores"][above, beside])

    def _finish(self) -> str:
        self._array.close()
        return sha256_of(self._file.beside)

    def close(self) -> None:
        # If the disk is full, the write that failed has raised the error already.
        with suppress(OSError):
            self._array.close()
        self._file.remove()


def write_ids(path: Path, ids: pa.Array) -> ResultFile:
    """Write row and id into a separate file, because the full matrix has only numbers."""
    schema = required_schema(("row", "id"), {"row": pa.int64(), "id": ids.type})
    groups = (
        [
            as_array(np.arange(start, min(start + GROUP_ROWS, len(ids)))),
            ids.slice(start, GROUP_ROWS),
        ]
        for start in range(0, len(ids), GROUP_ROWS)
    )
    return write_parquet(path, schema, groups, statistics=searched_columns(schema))

"""The full matrix whose rows are owned: an owner writes the scores of its rows to their places in a file of its own.

A piece has the scores of a rectangle: ``rows`` and ``columns``, the numbers of both, rising, and ``scores[rows,
columns]``. Of a tile that serves its columns too the mirror image stands beside it, named ``mirrored_rows`` and so on.

An owner keeps no score in memory: each piece goes to the disk as it comes, and the file is digested from its beginning
on, up to the first row that is not whole yet. It grows beside its place, as the head's does (``full``).
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.contract.store import Unfinished
from raysm.workloads.gather import ArrayFile, PrefixDigest
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.row_order import rectangles
from raysm.workloads.similarity.owning.owned import AskBounds, Owned, Piece, RangeFile, RangeMerger
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.reading.npy import header
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["OwnedFull", "numbers_of"]

MIRRORED = "mirrored_"
"""Before the names of the arrays of a tile's mirror image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedFull(Owned):
    """All scores, by ranges of rows."""

    columns: int
    """Of the whole matrix of scores."""
    dtype: Literal["float32", "float16"]
    """Of the scores."""
    max_tile_rows: int
    """Most columns that a task reads at once."""

    def informed(self, task: TileTask, ask: AskBounds) -> TileTask:
        """Return the task with how many columns are read at once; owners know nothing that would help it."""
        # Both layouts' tasks are dataclasses with that field; the protocol says no more than that it can be read.
        return replace(task, hint=self.max_tile_rows)  # type: ignore[type-var]

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

    def merger(self, file: RangeFile, scratch: Path, record: BlockRecord[Part]) -> RangeMerger:
        """Begin a file without any score."""
        return _Merger(self, file)

    def write_beside(self, folder: Path, ids: Ids | None) -> tuple[ResultFile, ...]:
        """Write the ids: the matrix has no place for them."""
        return output.write_ids_beside(folder, ids)


def numbers_of(task: TileTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a tile's rows, and of its columns."""
    rows, columns = task.tile.rows, task.tile.columns
    return (
        task.row_numbers(np.arange(rows.start, rows.stop)),
        task.column_numbers(np.arange(columns.start, columns.stop)),
    )


class _Merger(RangeMerger):
    """The rows of one range, on the disk."""

    scratch_bytes = 0

    def __init__(self, owned: OwnedFull, file: RangeFile) -> None:
        self._rows, self._columns = file.rows, owned.columns
        self._dtype = np.dtype(owned.dtype)
        self._head = header((self._rows.rows, self._columns), self._dtype)
        folder = file.folder / output.SIMILARITY_FOLDER
        self._part = output.ResultPart(folder=folder, name=file.name, rows=file.rows)
        target = self._part.path(".npy")
        # An owner of this range that was killed on this instance left what it had written, without a name.
        for torn in target.parent.glob(f".{target.name}.*"):
            torn.unlink(missing_ok=True)
        # Not in the scratch: to rename a file from one mount to another is to copy it.
        self._file = Unfinished(target)
        self._array = ArrayFile(self._file.beside, self._head, self._rows.rows, self._columns, self._dtype)
        self._digest = PrefixDigest(self._file.beside)
        self._written = np.zeros(self._rows.rows, dtype=np.int64)
        """Scores of each row that are written."""
        self._whole = 0
        """Rows from the first on that have all of them."""
        self._placed: ResultFile | None = None

    @property
    def result_bytes(self) -> int:
        """The scores, and what says how many they are."""
        return len(self._head) + self._rows.rows * self._columns * self._dtype.itemsize

    def take(self, name: str, piece: Piece) -> None:
        """Write a piece, and digest the rows that are whole now.

        Raises:
            NoRoom: The disk became full.
        """
        for side in ("", MIRRORED):
            if f"{side}scores" in piece:
                self._take(*(piece[f"{side}{what}"] for what in ("rows", "columns", "scores")))
        missing = self._written[self._whole :] < self._columns
        self._whole += int(missing.argmax()) if missing.any() else len(missing)
        self._digest.reach(self._array.position(self._whole, 0))

    def write(self, ids: Ids | None) -> ResultFile:
        """Wait for the digest, and place ``similarity/part-….npy``."""
        # Asked again, since another owner was lost meanwhile, it is there.
        if self._placed is None:
            sha256 = self._digest.finish()
            self._array.close()
            self._file.place()
            path = self._part.path(".npy")
            name = f"{path.parent.name}/{path.name}"
            self._placed = ResultFile(
                name=name,
                shape=(self._rows.rows, self._columns),
                units=("rows", "columns"),
                bytes=path.stat().st_size,
                sha256=sha256,
                how_to_read=f'import numpy; scores = numpy.load("{name}", mmap_mode="r")',
            )
        return self._placed

    def close(self) -> None:
        """Close the file; remove it if it was not placed."""
        self._digest.close()
        # Where the disk is full, what made it so is being raised.
        with suppress(OSError):
            self._array.close()
        self._file.remove()

    def _take(self, rows: NDArray[np.int64], columns: NDArray[np.int64], scores: NDArray[Any]) -> None:
        # The file begins with the range.
        own_rows = rows - self._rows.start
        for block, above, beside in rectangles(own_rows, columns):
            self._array.write(block, scores[above, beside])
        self._written[own_rows] += len(columns)

"""Top-k whose rows are owned: pieces hold keys, an owner merges them, and writes its rows of ``neighbors``.

A piece names the rows that it has keys of by runs of consecutive numbers, ``starts`` and ``lengths``, since a block of
rows has one, or a few where it lies on the instances file by file; ``counts`` of each row and ``keys`` one row after
the other, as a part has them.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.workloads.blocks import RowBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.row_order import Run, consecutive
from raysm.workloads.similarity.arithmetic.topk_accumulator import TopKAccumulator, zero_row_keys
from raysm.workloads.similarity.modes.topk_tile import TileBounds
from raysm.workloads.similarity.owning.owned import AskBounds, Owned, Piece, RangeFile, RangeMerger
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["OwnedTopK"]

Side: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint64]]
"""numbers[n] of rows, rising; counts[n] of their keys; and the keys."""


# Without ``==``: that of arrays is an array.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OwnedTopK(Owned):
    """The k most similar rows of each, by ranges of rows."""

    k: int
    """How many."""
    self_join: bool
    """Whether the rows look for neighbors among themselves."""
    max_tile_rows: int
    """Most rows that a task makes ready at once."""
    zero_rows: NDArray[np.int64]
    """Numbers of zero rows that look for neighbors, rising: no task looks for those."""

    def informed(self, task: TileTask, ask: AskBounds) -> TileTask:
        """Return the task with the lower bounds of its rows, and of its columns where it serves them."""
        rows, columns = (ask(numbers) for numbers in _sides_of(task))
        # Both layouts' tasks are dataclasses with that field; the protocol says no more than that it can be read.
        return replace(task, hint=TileBounds(rows, columns, self.max_tile_rows))  # type: ignore[type-var]

    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        """Yield the keys of each range."""
        rows, columns = _sides_of(task)
        pieces: dict[int, list[Side]] = defaultdict(list)
        _deal(pieces, ranges, (rows, arrays["counts"], arrays["keys"]))
        if "column_counts" in arrays:
            _deal(pieces, ranges, (columns, arrays["column_counts"], arrays["column_keys"]))
        for at, sides in pieces.items():
            yield at, _piece(sides)

    def merger(self, file: RangeFile, scratch: Path, record: BlockRecord[Part]) -> RangeMerger:
        """Begin with nobody known of any row."""
        return _Merger(self, file, scratch)


def _sides_of(task: TileTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a tile's rows, and of the columns that it serves."""
    rows, columns = task.tile.rows, task.tile.columns
    served = np.arange(columns.start, columns.stop if task.mirrored else columns.start)
    return task.row_numbers(np.arange(rows.start, rows.stop)), task.column_numbers(served)


def _deal(pieces: dict[int, list[Side]], ranges: Ranges, side: Side) -> None:
    numbers, counts, keys = side
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    for at, some in ranges.of(numbers):
        pieces[at].append((numbers[some], counts[some], keys[ends[some.start] : ends[some.stop]]))


def _piece(sides: list[Side]) -> dict[str, NDArray[Any]]:
    # Each side by itself: rows of a tile and its columns may meet, and are runs of their own all the same.
    runs = [run for numbers, _, _ in sides for run in consecutive(numbers)]
    return {
        "starts": np.array([run.start for run in runs], dtype=np.int64),
        "lengths": np.array([run.rows for run in runs], dtype=np.int64),
        "counts": np.concatenate([counts for _, counts, _ in sides]),
        "keys": np.concatenate([keys for _, _, keys in sides]),
    }


class _Merger(RangeMerger):
    """The best k of the rows of one range, by their numbers."""

    def __init__(self, owned: OwnedTopK, file: RangeFile, scratch: Path) -> None:
        self._file, rows = file, file.rows
        self._rows, self._k, self._self_join = rows, owned.k, owned.self_join
        low, high = np.searchsorted(owned.zero_rows, [rows.start, rows.stop])
        self._zero_rows = owned.zero_rows[low:high]
        self._accumulator = TopKAccumulator(scratch, rows.rows, owned.k)

    @property
    def result_bytes(self) -> int:
        """Of each neighbor its number and its score, of each row its number; ids are known when they are written."""
        return self._rows.rows * (12 * self._k + self._k // 8 + 9)

    @property
    def scratch_bytes(self) -> int:
        """The keys."""
        return self._rows.rows * self._k * 8

    def bounds(self, runs: Sequence[Run]) -> NDArray[np.float32]:
        """Return the score of the k-th best of each, -inf of rows that have fewer."""
        bounds, first = self._accumulator.lower_bounds, self._rows.start
        # Joined, and so copied: the bounds rise while Ray sends them.
        return np.concatenate([bounds[run.start - first : run.start - first + run.rows] for run in runs])

    def take(self, name: str, piece: Piece) -> None:
        """Merge a piece's keys."""
        # Run by run: the accumulator's file is read and written from the first to the last row of each call, and
        # between two runs there may be any number of rows.
        row = key = 0
        for start, length in zip(piece["starts"].tolist(), piece["lengths"].tolist(), strict=True):
            counts = piece["counts"][row : row + length]
            keys = int(counts.sum())
            first = start - self._rows.start
            self._accumulator.merge(RowBlock(first, first + length), counts, piece["keys"][key : key + keys])
            row, key = row + length, key + keys

    def write(self, ids: Ids | None) -> ResultFile:
        """Write ``neighbors/part-….parquet``."""
        part = output.ResultPart(
            folder=self._file.folder / output.NEIGHBORS_FOLDER, name=self._file.name, rows=self._rows
        )
        return output.write_neighbors_part(part, self._keys, self._k, ids)

    def close(self) -> None:
        """Close the file of the keys, which is gone then."""
        self._accumulator.close()

    def _keys(self, start: int, stop: int) -> NDArray[np.uint64]:
        # The accumulator counts from the first row of the range.
        keys = self._accumulator.read(start - self._rows.start, stop - self._rows.start)
        low, high = np.searchsorted(self._zero_rows, [start, stop])
        zero = self._zero_rows[low:high]
        keys[zero - start] = zero_row_keys(zero, self._k, same=self._self_join)
        return keys

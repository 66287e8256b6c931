"""Pairs whose rows are owned: a pair belongs to the owner of its row, of a self-join of the one with the lower number.

A piece is what a part is (``threshold``): ``rows``, ``counts``, ``neighbors`` and ``similarities``, of the rows of one
range. An owner records pieces as they come, and merges them when all are there, so that it holds no more of its pairs
than the head would: about one row group, and what it copies that from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from raysm.contract.result import ResultFile
from raysm.workloads.blocks import TileBlock
from raysm.workloads.gather import check_room
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.modes.merged_pairs import merged_pairs
from raysm.workloads.similarity.modes.threshold_tile import again
from raysm.workloads.similarity.owning.owned import Owned, Piece, RangeFile, RangeMerger
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["OwnedPairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedPairs(Owned):
    """All pairs that are similar enough, by ranges of the rows that come first in them."""

    self_join: bool
    """Whether the rows look for pairs among themselves."""

    def ranges(self, rows: int, count: int) -> Ranges:
        """Cut the rows for about as many pairs in each range, if they are as many of every two blocks of rows."""
        # Of a self-join the first row has a pair with any other, and the last has none.
        return Ranges.falling(rows, count) if self.self_join else Ranges.even(rows, count)

    def given_up(self, task: TileTask, arrays: Piece) -> Sequence[TileBlock]:
        """Return the pieces of a tile that has more pairs than a task may hand over."""
        return again(task.tile, arrays)

    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        """Yield the pairs of each range that the tile has rows of; of some there are none."""
        rows = arrays["rows"].astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(arrays["counts"], dtype=np.int64)])
        some_of = dict(ranges.of(rows))
        for at in sorted(_touched(task, ranges)):
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

    def merger(self, file: RangeFile, scratch: Path, record: BlockRecord[Part]) -> RangeMerger:
        """Begin with no pair."""
        return _Merger(file, record)


def _touched(task: TileTask, ranges: Ranges) -> set[int]:
    """Return the ranges that have rows of a tile, or of a self-join columns: either may be the first of a pair."""
    rows, columns = task.tile.rows, task.tile.columns
    numbers = [task.row_numbers(np.arange(rows.start, rows.stop))]
    if task.mirrored:
        numbers.append(task.column_numbers(np.arange(columns.start, columns.stop)))
    return {at for side in numbers for at, _ in ranges.of(side)}


class _Merger(RangeMerger):
    """The names of the recorded pieces that hold pairs."""

    keeps_pieces: ClassVar[bool] = True

    # Nobody knows before how many pairs there are: ``write`` looks for room.
    result_bytes = scratch_bytes = 0

    def __init__(self, file: RangeFile, record: BlockRecord[Part]) -> None:
        self._file, self._record = file, record
        self._with_pairs: list[str] = []
        self._pairs = 0

    def take(self, name: str, piece: Piece) -> None:
        """Note a piece; without pairs it has no first and last row, by which ``merged_pairs`` passes over pieces."""
        if len(piece["rows"]):
            self._with_pairs.append(name)
            self._pairs += len(piece["neighbors"])

    def write(self, ids: Ids | None) -> ResultFile:
        """Write ``pairs/part-….parquet``."""
        file = self._file
        part = output.ResultPart(folder=file.folder / output.PAIRS_FOLDER, name=file.name, rows=file.rows)
        check_room([(file.folder, int(self._pairs * output.pair_bytes(ids)))], where=file.host)
        chunks = merged_pairs(self._record, self._with_pairs, file.rows, lambda rows: None)
        return output.write_pairs_part(part, chunks, ids)

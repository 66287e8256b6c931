"""The interface of modes: what a task returns, how owners share it, and how they write it.

The sizes of row groups depend only on the request and the rows, so that the bytes of the result do
not depend on blocks or instances.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysm.core.protocol.result import ResultFile
from raysm.features.similarity.cluster import tiling
from raysm.features.similarity.cluster.reading.columns import Ids
from raysm.features.similarity.cluster.reading.matrix import MatrixInfo
from raysm.features.similarity.cluster.tasks import Context, Part, TileTask
from raysm.features.similarity.cluster.tiling import PartLimits, RowRun, Sizing
from raysm.features.similarity.request import Similarity
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.row_blocks import RowBlock, TileBlock

GROUP_ROWS = 1 << 20
"""Most rows of a row group of the result's tables."""

Piece: TypeAlias = Mapping[str, NDArray[Any]]
"""An owner's share of a tile's result: arrays by name, which refer to rows by their numbers in the
matrix."""

ReadRows: TypeAlias = Callable[[int, int], NDArray[Any]]
"""Given two row numbers, returns the merged rows from the first to before the second."""

AskBounds: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Given rising row numbers[n], returns lower_bounds[n] of their scores that the owners know."""


@dataclass(frozen=True, slots=True)
class Ranges:
    edges: tuple[int, ...]
    """The first row of each range, then the number of all rows; rising."""

    @classmethod
    def even(cls, rows: int, count: int) -> "Ranges":
        """Cut ``rows`` rows into ``count`` ranges of about equal size, at most one for each row."""
        count = max(1, min(count, rows))
        return cls(tuple(rows * at // count for at in range(count + 1)))

    @classmethod
    def falling(cls, rows: int, count: int) -> "Ranges":
        """Split rows into ranges of about equally many pairs of a row and a later one."""
        count = max(1, min(count, rows))
        # The first x of N rows have (N**2 - (N - x)**2) / 2 pairs.
        edges = [rows - round(rows * (1 - at / count) ** 0.5) for at in range(count)]
        # Rounding may put two edges on one row, but every range needs a row.
        for at in range(1, count):
            edges[at] = min(max(edges[at], edges[at - 1] + 1), rows - count + at)
        return cls((*edges, rows))

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[RowBlock]:
        return map(RowBlock, self.edges, self.edges[1:])

    def of(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
        """Yield (range, slice of ``numbers``) for each range with any of these rising numbers."""
        if not len(numbers):
            return
        # Find the ranges of both ends first: a block of rows meets only one or two of hundreds.
        first, last = np.searchsorted(self.edges, numbers[[0, -1]], side="right") - 1
        cuts = np.searchsorted(numbers, self.edges[first : last + 2]).tolist()
        for at, (start, stop) in enumerate(zip(cuts, cuts[1:], strict=False), start=int(first)):
            if start < stop:
                yield at, slice(start, stop)


# eq=False, because comparing arrays yields an array.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OwnedRange:
    """One range of the result: its rows, and what their owner needs to write them."""

    rows: RowBlock
    columns: int
    """Rows among which these look for neighbors."""
    self_join: bool
    zero_rows: NDArray[np.int64]
    """Numbers of all zero rows that look for neighbors, rising; tasks skip these rows."""
    in_strips: bool = False
    """True if each piece has all columns of its rows."""
    part: str = ""

    def path(self, folder: Path, stem: str, suffix: str) -> Path:
        """Return where its file of the result lies below ``folder``."""
        return folder / stem / f"{self.part}{suffix}" if self.part else folder / f"{stem}{suffix}"

    def describe(self, file: ResultFile, stem: str) -> ResultFile:
        """Return the file's entry in the manifest, with its folder if it is one of several."""
        if not self.part:
            return file
        how_to_read = file.how_to_read
        if file.name.endswith(".parquet"):
            how_to_read = f'import pyarrow.parquet as pq; table = pq.read_table("{stem}")'
        return replace(file, name=f"{stem}/{file.name}", how_to_read=how_to_read)


class RangeMerger(ABC):
    """Merges the pieces of one range while tiles are computed.

    The owner of the range always closes the merger in the end.
    """

    keeps_pieces: ClassVar[bool] = False
    """True if ``write`` reads the pieces from the record, so that the owner must record all of
    them."""

    result_bytes: int = 0
    scratch_bytes: int = 0
    """Bytes that it needs in the scratch folder."""
    recorded_bytes: int = 0
    """Least bytes that its recorded pieces take."""

    def bounds(self, runs: Sequence[RowRun]) -> NDArray[np.float32]:
        """Return the lower bounds of the scores of some of its rows, one run after the other."""
        raise NotImplementedError(f"{type(self).__name__} knows no bounds")

    @abstractmethod
    def take(self, name: str, piece: Piece) -> None:
        """Merge the piece of a tile; each name comes only once."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return some of its rows as they are merged by now."""
        raise NotImplementedError(f"{type(self).__name__} has no merged rows")

    @abstractmethod
    def write(self, ids: Ids | None, on_rows: Callable[[int], None]) -> ResultFile:
        """Write its file, calling ``on_rows`` with further rows written.

        A second call returns the same file.
        """

    def close(self) -> None:  # noqa: B027
        ...


class Mode(ABC):
    """One kind of result that a request can ask for. It is pickled for the tasks and the owners."""

    name: ClassVar[str]
    without_gpus: ClassVar[str] = ""
    """The reason why GPUs do not compute it, in one phrase; empty if they do."""
    in_strips: ClassVar[bool] = False
    """True if tasks compute strips of whole rows, and so each pair twice, provided that every
    instance has all rows."""
    for_later: ClassVar[bool] = False
    """True if recorded pieces leave the page cache at once, because together they are as large as
    the result."""

    @property
    def merged_row_bytes(self) -> int:
        """Bytes of a merged row, if pieces take several times as many; 0 if merging saves none."""
        return 0

    @classmethod
    @abstractmethod
    def from_workload(cls, workload: Similarity) -> Self | None:
        """Return the mode if the request asks for it, else None."""

    @property
    @abstractmethod
    def limits(self) -> PartLimits: ...

    def check(self, queries: MatrixInfo, matrix: MatrixInfo, *, self_join: bool) -> None:  # noqa: B027
        """Raise ``InvalidInput`` if these rows cannot give what is asked for.

        Most modes accept any rows.
        """

    def is_worth_keeping(self, matrix: MatrixInfo, slots: int, writers: int = 1) -> bool:
        """Return whether reading a recorded part is faster than computing it again.

        ``writers`` is the number of owners that keep parts, each on its own disk.
        """
        return True

    def tiles(self, sizing: Sizing, record: BlockRecord[Any]) -> list[TileTask]:
        """Return the tiles of rows that every instance has, in the order of dispatch."""
        rows, columns = sizing.tile_rows(record)
        if sizing.self_join:
            cuts = tiling.triangle(sizing.matrix.rows, rows)
        else:
            cuts = tiling.rectangle(sizing.queries.rows, sizing.matrix.rows, rows, columns)
        return [TileTask(cut, sizing.self_join) for cut in cuts]

    def ranges(self, rows: int, count: int, *, self_join: bool) -> Ranges:
        """Cut the rows into ranges of about equal work for the owners, the same on any cluster."""
        return Ranges.even(rows, count)

    def add_hint(self, task: TileTask, ask: AskBounds) -> TileTask:
        """Return the task with a hint of what owners know of its rows; most modes need none."""
        return task

    def probe_hint(self, context: Context, above: RowBlock, beside: RowBlock) -> Any:
        """Return the hint for a tile of two blocks that ``estimate`` measures.

        Most modes need none.
        """
        return None

    @abstractmethod
    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Do one task in a process that can read the rows of its tile.

        Return the arrays of its part.
        """

    def split_given_up(self, task: TileTask, arrays: Piece) -> Sequence[TileBlock]:
        """Return the tiles to compute instead of one that was given up, from its first row on."""
        return ()

    @abstractmethod
    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        """Yield (range, piece) for each range that the tile has rows of, even an empty piece."""

    @abstractmethod
    def merger(
        self, owned: OwnedRange, folder: Path, scratch: Path, record: BlockRecord[Part]
    ) -> RangeMerger:
        """Start to merge a range, in the process of its owner.

        ``record`` has its pieces if it ``keeps_pieces``.
        """

    def check_room(self, folder: Path, rows: int) -> None:
        """Raise ``NoRoom`` if ``folder`` lacks room for the file of ``write_merged``."""
        raise NotImplementedError(f"{type(self).__name__} does not merge rows")

    def write_merged(
        self,
        folder: Path,
        rows: int,
        read: ReadRows,
        ids: Ids | None,
        on_rows: Callable[[int], None],
    ) -> ResultFile:
        """Write, on the head, the one file of all rows, which owners have merged."""
        raise NotImplementedError(f"{type(self).__name__} does not merge rows")

    def write_extra_files(self, folder: Path, ids: Ids | None) -> tuple[ResultFile, ...]:
        """Write, on the head, the files of the result beside those of the ranges.

        Most modes have none.
        """
        return ()


def numbers_of(task: TileTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows, columns = (
        np.arange(block.start, block.stop) for block in (task.tile.rows, task.tile.columns)
    )
    return task.row_numbers(rows), task.column_numbers(columns)


def served_numbers(task: TileTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a tile's rows, and of its columns if it is mirrored, else none."""
    rows, columns = numbers_of(task)
    return rows, columns if task.mirrored else columns[:0]


# ---- tables of the result


def required_schema(order: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Schema:
    # No value is ever missing, and for required columns Parquet stores no definition levels.
    return pa.schema(
        [pa.field(name, types[name], nullable=False) for name in order if name in types]
    )


def searched_columns(schema: pa.Schema) -> list[str]:
    """Return the columns by which a reader looks for rows.

    Statistics of the others would exclude no row group.
    """
    return [name for name in ("row", "id") if name in schema.names]

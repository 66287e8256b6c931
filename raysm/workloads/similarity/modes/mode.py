"""A mode: what tasks hand back of a tile, which owner gets what of it, and how an owner writes its rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.tiling import RowRun
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.reading.matrix import Described
from raysm.workloads.similarity.sizing import PartLimits, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part, TileTask

Piece: TypeAlias = Mapping[str, NDArray[Any]]
"""An owner's share of a tile: arrays by name, in which rows have their numbers in the matrix."""

AskBounds: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Returns lower_bounds[n] of the scores of rows with these numbers, which rise, as far as their owners know them."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """All rows in consecutive ranges of their numbers."""

    edges: tuple[int, ...]
    """The first row of each range, and behind them the number of all rows; rising."""

    @classmethod
    def even(cls, rows: int, count: int) -> "Ranges":
        """Cut so many rows into so many ranges of about one size, into fewer where there are fewer rows."""
        count = max(1, min(count, rows))
        return cls(tuple(rows * at // count for at in range(count + 1)))

    @classmethod
    def falling(cls, rows: int, count: int) -> "Ranges":
        """Cut rows of which each has a pair with every later one into ranges of about as many pairs."""
        count = max(1, min(count, rows))
        # Of N rows the first x have N**2 - (N - x)**2 halves of a pair.
        edges = [rows - round(rows * (1 - at / count) ** 0.5) for at in range(count)]
        # Rounded, two edges may fall on one row; a range without rows would be a file without any.
        for at in range(1, count):
            edges[at] = min(max(edges[at], edges[at - 1] + 1), rows - count + at)
        return cls((*edges, rows))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[RowBlock]:
        """Yield their rows."""
        return map(RowBlock, self.edges, self.edges[1:])

    def of(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
        """Yield (range, slice) of rising numbers of rows: which of them belong to which range, where any do."""
        if not len(numbers):
            return
        # By the two ends first: of hundreds of ranges a block of rows meets one or two.
        first, last = np.searchsorted(self.edges, numbers[[0, -1]], side="right") - 1
        cuts = np.searchsorted(numbers, self.edges[first : last + 2]).tolist()
        for at, (start, stop) in enumerate(zip(cuts, cuts[1:], strict=False), start=int(first)):
            if start < stop:
                yield at, slice(start, stop)


# Without ``==``: that of arrays is an array.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OwnedRange:
    """One range of the result: which rows, and what their owner has to know to write them."""

    rows: RowBlock
    columns: int
    """Rows among which these look for neighbors."""
    self_join: bool
    zero_rows: NDArray[np.int64]
    """Numbers of all zero rows that look for neighbors, rising: no task looks for theirs."""
    in_strips: bool = False
    """True if each piece has all columns of its rows."""
    part: str = ""
    """Name of its file among several, ``part-00003-of-00008``; empty if the result is one file."""

    def path(self, folder: Path, stem: str, suffix: str) -> Path:
        """Return where its file of the result lies below ``folder``."""
        return folder / stem / f"{self.part}{suffix}" if self.part else folder / f"{stem}{suffix}"

    def described(self, file: ResultFile, stem: str) -> ResultFile:
        """Return what the manifest says of the file: if it is one of several, which folder it is in."""
        if not self.part:
            return file
        how_to_read = file.how_to_read
        if file.name.endswith(".parquet"):
            how_to_read = f'import pyarrow.parquet as pq; table = pq.read_table("{stem}")'
        return replace(file, name=f"{stem}/{file.name}", how_to_read=how_to_read)


class RangeMerger(ABC):
    """One range of the result, while its tiles are computed. It is closed however the work ends."""

    keeps_pieces: ClassVar[bool] = False
    """True if ``write`` reads the pieces from the record, so that each has to be recorded."""

    result_bytes: int = 0
    """Approximate size of its file; 0 where only the pieces tell."""
    scratch_bytes: int = 0
    """Bytes that it needs in the scratch folder."""
    recorded_bytes: int = 0
    """The least that its recorded pieces take."""

    def bounds(self, runs: Sequence[RowRun]) -> NDArray[np.float32]:
        """Return the lower bounds of the scores of some of its rows, one run after the other."""
        raise NotImplementedError(f"{type(self).__name__} knows no bounds")

    @abstractmethod
    def take(self, name: str, piece: Piece) -> None:
        """Merge what was found of a tile, or of a part of it; it never gets the same name twice."""

    @abstractmethod
    def write(self, ids: Ids | None, on_rows: Callable[[int], None]) -> ResultFile:
        """Write its file of the result, and tell how many more rows are written; asked again, return the same file."""

    def close(self) -> None:  # noqa: B027
        """Close files; a merger without any need not override it."""


class Mode(ABC):
    """One thing that may be asked for. It travels to the tasks and the owners."""

    name: ClassVar[str]
    without_gpus: ClassVar[str] = ""
    """Why GPUs do not compute it, in one phrase; empty where they do."""
    in_strips: ClassVar[bool] = False
    """If every instance has all rows, tasks compute strips of whole rows, each pair twice, and not the triangle."""
    for_later: ClassVar[bool] = False
    """Recorded pieces leave the page cache at once, because together they are as large as the result."""

    @classmethod
    @abstractmethod
    def asked_by(cls, workload: Similarity) -> Self | None:
        """Return the mode, if that is what is asked for."""

    @property
    @abstractmethod
    def limits(self) -> PartLimits:
        """Limits of its parts."""

    def check(self, queries: Described, matrix: Described, *, self_join: bool) -> None:  # noqa: B027
        """Raise ``InvalidInput`` where rows like these cannot give what is asked for; most modes take any."""

    def is_worth_keeping(self, matrix: Described, slots: int, writers: int = 1) -> bool:
        """Return whether another run reads a part sooner from its record than it computes it: most parts are small.

        Args:
            matrix: The rows among which neighbors are looked for.
            slots: Tasks that the cluster runs at once.
            writers: Owners that keep parts, each on its own disk.
        """
        return True

    def tiles(self, sizing: Sizing, record: BlockRecord[Any]) -> list[TileTask]:
        """Return the tiles of rows that every instance has, in the order in which they are to be dispatched."""
        if sizing.self_join:
            cuts = tiling.triangle(sizing.matrix.rows, sizing.triangle_rows(record))
        else:
            cuts = tiling.rectangle(sizing.queries.rows, sizing.matrix.rows, *sizing.rectangle_rows(record))
        return [TileTask(cut, sizing.self_join) for cut in cuts]

    def ranges(self, rows: int, count: int, *, self_join: bool) -> Ranges:
        """Cut the rows for about as much work of each owner: by the rows and the count alone, on any cluster."""
        return Ranges.even(rows, count)

    def informed(self, task: TileTask, ask: AskBounds) -> TileTask:
        """Return the task with what owners know of its rows; most modes need to know nothing."""
        return task

    def probed_hint(self, context: Context, above: RowBlock, beside: RowBlock) -> Any:
        """Return the hint of a tile of two blocks that is measured: what a run knows of it, mostly nothing."""
        return None

    @abstractmethod
    def compare(self, context: Context, task: TileTask) -> dict[str, NDArray[Any]]:
        """Do one task, where the rows of its tile can be read; return what was found."""

    def given_up(self, task: TileTask, arrays: Piece) -> Sequence[TileBlock]:
        """Return the pieces of a tile, in rows counted from its first, that are to be computed instead of it."""
        return ()

    @abstractmethod
    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        """Yield (range, piece) of what was found of a tile: one for each range that it has rows of, found or not.

        Also where nothing was found there: an owner knows by its pieces which tiles were computed.
        """

    @abstractmethod
    def merger(self, owned: OwnedRange, folder: Path, scratch: Path, record: BlockRecord[Part]) -> RangeMerger:
        """Start to merge a range, where its owner runs.

        Args:
            owned: Its rows, and what has to be known to write them.
            folder: Where the result goes.
            scratch: Room for what is merged.
            record: Where its pieces are, of a merger that keeps them.
        """

    def write_beside(self, folder: Path, ids: Ids | None) -> tuple[ResultFile, ...]:
        """Write, on the head, what the result has beside the ranges; of most modes nothing."""
        return ()


def numbers_of(task: TileTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a tile's rows, and of its columns."""
    rows, columns = task.tile.rows, task.tile.columns
    return (
        task.row_numbers(np.arange(rows.start, rows.stop)),
        task.column_numbers(np.arange(columns.start, columns.stop)),
    )


def served_numbers(task: TileTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of a tile's rows, and of the columns that it serves too: all of them, or none."""
    rows, columns = numbers_of(task)
    return rows, columns if task.mirrored else columns[:0]

"""What a mode says of a result that instances own by ranges of rows: a mode that can be owned has one ``Owned``.

What flows in, on the instance that computed a tile, is what was found of it; what flows out are its pieces, each for
the owner of their rows. On the owner's side a ``RangeMerger`` takes pieces in, and writes its range of the result.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["AskBounds", "Owned", "Piece", "RangeFile", "RangeMerger"]

Piece: TypeAlias = Mapping[str, NDArray[Any]]
"""What one owner is sent of a tile: arrays by name, in which rows have their numbers in the matrix."""

AskBounds: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Returns what the owners know of rows with these numbers, which rise: lower bounds[n] of their scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeFile:
    """One of the files that are the result together."""

    folder: Path
    """Where to; below it they have a folder of their own."""
    name: str
    """Its own, behind that folder's and without a suffix: ``part-00003-of-00008``; in the order of the rows."""
    rows: RowBlock
    """The numbers of its rows."""
    host: str
    """The instance that writes it."""


# Not the mode's ``Collector``: that sees whole parts, on the head, and knows places. This one sees numbers alone, so
# that one merger serves rows that lie whole everywhere and rows that are shared out; nor does it see which tasks there
# are, or which of them were done before: its owner knows, whatever is merged.
class RangeMerger(ABC):
    """One range of the result, while its tiles are computed. It is closed however the work ends."""

    keeps_pieces: ClassVar[bool] = False
    """Whether it looks for the pieces in the record once all are there, so that each has to be recorded."""

    @property
    @abstractmethod
    def result_bytes(self) -> int:
        """What its file will take, about; 0 where only the pieces tell."""

    @property
    @abstractmethod
    def scratch_bytes(self) -> int:
        """What it takes in the scratch."""

    def bounds(self, runs: Sequence[Run]) -> NDArray[np.float32]:
        """Return the lower bounds of the scores of some of its rows, one run after the other."""
        raise NotImplementedError(f"{type(self).__name__} knows no bounds")

    @abstractmethod
    def take(self, name: str, piece: Piece) -> None:
        """Take in what was found of a tile, or a part of it; it is never told of the same twice."""

    @abstractmethod
    def write(self, ids: Ids | None) -> ResultFile:
        """Write its file of the result, or what is left of it to write; asked again, return the same."""

    def close(self) -> None:  # noqa: B027
        """Let go of what is held; some hold nothing."""


class Owned(ABC):
    """How a mode's result is cut into ranges. It travels to the tasks and the owners."""

    def ranges(self, rows: int, count: int) -> Ranges:
        """Cut the rows, for about as much work of each owner."""
        # By the rows and the count alone: another run that is given the same finds what the first one recorded.
        return Ranges.even(rows, count)

    def informed(self, task: TileTask, ask: AskBounds) -> TileTask:
        """Return the task with what its owners know by now; most modes need to know nothing."""
        return task

    def given_up(self, task: TileTask, arrays: Piece) -> Sequence[TileBlock]:
        """Return the pieces of a tile, in rows counted from its first, that are computed instead of it."""
        return ()

    @abstractmethod
    def split(self, task: TileTask, arrays: Piece, ranges: Ranges) -> Iterator[tuple[int, Piece]]:
        """Yield (range, piece) of what was found of a tile: one for each range that it has rows of, found or not.

        Also where nothing was found there: an owner knows by its pieces which tiles were computed.
        """

    @abstractmethod
    def merger(self, file: RangeFile, scratch: Path, record: BlockRecord[Part]) -> RangeMerger:
        """Begin a range, on the instance that owns it.

        Args:
            file: Its rows, and where they are to be written.
            scratch: Room for what is merged.
            record: Where its pieces are, of one that keeps them.
        """

    def write_beside(self, folder: Path, ids: Ids | None) -> tuple[ResultFile, ...]:
        """Write, on the head, what the result has beside the ranges; of most modes nothing."""
        return ()

"""Where rows lie, as a run sees it: a layout loads them, has them prepared, and cuts the pairs into tasks.

What flows in are the channels; what flows out are a whole ``Context`` and a ``Dispatch``, which hands tasks to
``map_blocks`` and is told which of them are finished.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from raysm.workloads.blocks import Record, RowBlock, TileBlock, map_blocks
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic.row_order import RowOrder
from raysm.workloads.similarity.layouts.sharded.schedule import Share
from raysm.workloads.similarity.modes import Collector, Mode
from raysm.workloads.similarity.reading.matrix import Described
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.runs import Report, Run
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.sizing.spread import Spread
from raysm.workloads.similarity.tasks.context import Context, RowShape
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.preparing import prepared
from raysm.workloads.similarity.tasks.tile_task import Comparing, TileTask

__all__ = ["Dispatch", "Layout", "LoadedRows", "Queue"]


class LoadedRows(Protocol):
    """The rows of one channel, loaded where they lie, as the head knows them."""

    @property
    def source(self) -> Source:
        """The channel."""
        ...

    @property
    def described(self) -> Described:
        """The rows as their files have them."""
        ...

    @property
    def order(self) -> RowOrder:
        """Their numbers and places."""
        ...

    @property
    def everywhere(self) -> bool:
        """Whether every instance has all of them, so that none ever travels."""
        ...

    @property
    def slots(self) -> Mapping[str, int]:
        """Tasks that each instance runs at once, of those that were asked for a share; none where all have all."""
        ...

    @property
    def row_bytes(self) -> float:
        """Bytes of a row that travels, on average; 0 where none ever does."""
        ...

    @property
    def largest_share(self) -> int:
        """Most rows that an instance has."""
        ...

    @property
    def store_bytes(self) -> float:
        """What the smallest object store holds, of the instances that send rows."""
        ...

    def as_type(self, dtype: np.dtype[Any]) -> Described:
        """Return what is known of the rows, read as ``dtype``."""
        ...

    def compares_elements(self) -> bool:
        """Return whether rows like these, which are sparse, are compared by the columns that they share."""
        ...

    def shape(self, dtype: np.dtype[Any], *, sparse: bool) -> RowShape:
        """Return what tasks are told before anything is prepared."""
        ...

    def digest(self) -> "Future[str]":
        """Return what will be the digest of the files."""
        ...

    def prepared_parts(self, shape: RowShape, name: str) -> Iterator[tuple[RowBlock, Part]]:
        """Yield what preparing each block of the rows made, by its places; ``name`` is for messages."""
        ...

    def shares(self, slots: Mapping[str, int], chunk_rows: int) -> list[Share]:
        """Return the rows in chunks, by the instance that has them.

        Args:
            slots: Tasks that each instance runs at once.
            chunk_rows: No chunk has more rows.
        """
        ...

    def sent_bytes(self, sent_rows: Mapping[str, int]) -> dict[str, int]:
        """Return the bytes of so many rows of each instance, as they travelled."""
        ...


class Queue(Protocol):
    """The tasks, as ``map_blocks`` asks for them."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any:
        """Return a task, or ``LATER``."""
        ...

    def finished(self, task: Any, pieces: Sequence[TileBlock]) -> Sequence[TileTask]:
        """Say that a task has its part; return the tasks that are dispatched instead, for pieces of its tile."""
        ...


class Dispatch(ABC):
    """How the pairs were cut into tasks, and how those are dispatched."""

    tasks: Sequence[TileTask]
    """All of them."""
    row_order: RowOrder
    """Of the rows that look for neighbors."""
    in_strips: bool = False
    """See ``Tiling``."""
    note: str = ""
    """What is to be said of it."""

    @abstractmethod
    def queue(self, collector: Collector) -> Queue:
        """Begin to dispatch: each task is told what the collector knows then."""

    @abstractmethod
    def function(self, mode: Comparing, context: Context) -> Callable[..., Part]:
        """Return what is called for each task, where it runs."""

    @abstractmethod
    def options(self, queue: Queue) -> Mapping[str, Any]:
        """Return what ``map_blocks`` is told beside."""

    def parts(
        self, function: Callable[..., Part], queue: Any, record: Record[Part] | None
    ) -> Iterator[tuple[TileTask, Part]]:
        """Have the tasks done, or read from the record; yield each with its part."""
        return map_blocks(function, queue, record=record, **self.options(queue))

    def sent_bytes(self, queue: Queue) -> Mapping[str, int]:
        """Return how many bytes of rows each instance sent to others."""
        return {}


# No slots, unlike elsewhere: ``cached_property`` needs the ``__dict__``, which being frozen does not close.
@dataclass(frozen=True)
class Layout(ABC):
    """Where the rows lie."""

    suffix: ClassVar[str]
    """Of the name that parts are recorded under: those of one layout are of no use to another."""
    without_gpus: ClassVar[str] = ""
    """Why GPUs do not compute, in one phrase; empty where they do."""

    rows: LoadedRows
    """The rows among which neighbors are looked for."""
    other_queries: LoadedRows | None
    """The rows that look for them; None: the same rows do."""

    @property
    def operands(self) -> list[LoadedRows]:
        """The matrix, and the queries where they are others."""
        return [self.rows] if self.other_queries is None else [self.rows, self.other_queries]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that all rows which are compared with each other are read as.

        That changes no score, since each element stays what it is as float64: the common type either holds all numbers
        of both, or is float64 (that of int64 and uint64, say, which round beyond 2**53 as the definition does).
        """
        return np.result_type(*(rows.described.dtype for rows in self.operands))

    @property
    def matrix(self) -> Described:
        """The rows among which neighbors are looked for, as they are read."""
        return self._read_alike[0]

    @property
    def queries(self) -> Described:
        """The rows that look for them, as they are read; the same value where those are the matrix's own."""
        return self._read_alike[-1]

    # Kept: the modes ask whether the queries *are* the matrix, which two values of the same rows would deny.
    @functools.cached_property
    def _read_alike(self) -> list[Described]:
        return [rows.as_type(self.dtype) for rows in self.operands]

    def compares_elements(self) -> bool:
        """Return whether all rows are sparse, and are compared by the columns that they share."""
        # In this order: of sharded rows, the second has an instance open its files and count elements.
        return all(rows.described.sparse for rows in self.operands) and self.rows.compares_elements()

    def prepare(self, report: Report, *, sparse: bool, engine: str | None) -> tuple[Context, Mapping[str, str]]:
        """Learn what has to be known of all rows; return it with the digest of each channel.

        Raises:
            InvalidInput: A row holds NaN or infinity; the first such row is named.
        """
        # It reads the same files as the tasks do, beside them: one pass of the disk.
        digesting = {rows.source.channel: rows.digest() for rows in self.operands}
        operands = []
        # Not strict: without other queries the matrix stands alone.
        for rows, name in zip(self.operands, ("the matrix", "the queries"), strict=False):
            shape = rows.shape(self.dtype, sparse=sparse)
            operands.append(prepared(shape, _reported(report, rows.prepared_parts(shape, name)), name=name))
        # The second, or None where there is one operand alone.
        context = Context(matrix=operands[0], other_queries=(*operands, None)[1], engine=engine)
        # Waited for last: nothing but the record needs the digests, and rows are prepared meanwhile.
        return context, {channel: digest.result() for channel, digest in digesting.items()}

    @property
    def spread(self) -> Spread | None:
        """How the rows are shared out; None: each instance has all."""
        return None

    @abstractmethod
    def cut(self, run: Run, mode: Mode, sizing: Sizing, record: BlockRecord[Any]) -> Dispatch:
        """Cut all pairs into tasks, and say which of them run where."""


def _reported(report: Report, parts: Iterator[tuple[RowBlock, Part]]) -> Iterator[tuple[RowBlock, Part]]:
    for block, part in parts:
        report.add(part)
        yield block, part

"""The owner of one range of rows: a process on one instance that takes pieces in from all, and writes their file.

It is an actor of Ray. Where its process or its instance is lost, Ray begins it anew on another, with nothing: callers
wait meanwhile, and its ``write`` says then that pieces are missing. What it recorded among the checkpoints it finds
again, where the folder is the same or was brought back by the service.

**Memory**: what its merger holds (``RangeMerger``), and a piece at a time; others wait in Ray's object store, or on
the disk that this spills to. Calls are threads: a range's bounds are told while a piece is being merged.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.errors import NoRoom
from raysm.workloads.blocks import RowBlock
from raysm.workloads.gather import check_room
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.owning.owned import Owned, Piece, RangeFile, RangeMerger
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.runs import Folders
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part, peak_memory_bytes

__all__ = ["Owner", "OwnedRange", "Written", "here"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedRange:
    """All that an owner is told when it begins, wherever that is."""

    owned: Owned
    """The mode's."""
    rows: RowBlock
    """The numbers of its rows."""
    file: str
    """Name of its file, see ``RangeFile``."""
    on_instance: int = 1
    """Ranges that its instance owns: they share its disks."""
    source: Source
    """The matrix: it knows this instance's scratch."""
    folders: Callable[[], Folders]
    """Returns where this instance writes."""
    depends_on: Mapping[str, Any]
    """What its records depend on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A range that is written."""

    file: ResultFile
    """Its file."""
    host: str
    """The instance that has it."""
    peak_memory_bytes: int
    """The most memory that the owner ever held."""


class Owner:
    """One range, on the instance where this runs."""

    def __init__(self, owned_range: OwnedRange) -> None:
        """Open nothing yet: an error here would end the actor for good, and not be told to whoever calls it."""
        self._range = owned_range
        self._lock = threading.Lock()
        self._merger: RangeMerger | None = None
        self._record: BlockRecord[Part] | None = None
        self._held: set[str] = set()

    def hold(self, names: Sequence[str]) -> list[bool]:
        """Return which of these tiles' pieces are here, after taking in what an earlier owner recorded of them.

        Raises:
            NoRoom: The disk cannot hold the range, or became full.
        """
        with self._lock:
            merger = self._opened()
            # One after the other: of a large range the pieces together are many times what the merger holds.
            for name in names:
                recorded = self._recorded(name)
                if self._record is not None and name not in self._held and recorded in self._record:
                    self._merge(merger, name, self._record.load(recorded).arrays)
            return [name in self._held for name in names]

    def bounds(self, runs: Sequence[Run]) -> NDArray[np.float32]:
        """Return what is known of these rows."""
        merger = self._merger
        if merger is None:
            with self._lock:
                merger = self._opened()
        # Without the lock: a bound only rises, and both what it was and what it becomes are true.
        return merger.bounds(runs)

    def take(self, name: str, piece: Piece) -> None:
        """Take in a tile's piece; one that comes again, from a task that was tried again, is dropped.

        Raises:
            NoRoom: The disk became full.
        """
        with self._lock:
            merger, recorded = self._opened(), self._recorded(name)
            if name in self._held:
                return
            # First: tasks may drop what does not reach the bounds that this piece raises.
            if self._record is not None:
                self._record.save(recorded, Part(arrays=piece, peaks={}, seconds=0.0))
            self._merge(merger, name, piece)

    def write(self, names: Sequence[str], ids: Ids | None) -> Written | None:
        """Write the range; None: it lacks the piece of one of these tiles, since another owner began it.

        Raises:
            NoRoom: The disk became full.
        """
        with self._lock:
            merger = self._opened()
            if not self._held.issuperset(names):
                return None
            file = merger.write(ids)
            return Written(file=file, host=self._range.source.here().host, peak_memory_bytes=peak_memory_bytes())

    def end(self) -> None:
        """Remove what was recorded, which is in the result, and let go of what is held."""
        with self._lock:
            # Other owners of this instance have theirs in the same folder, and are as done with it.
            if self._record is not None:
                self._record.remove()
            if self._merger is not None:
                self._merger.close()

    def _merge(self, merger: RangeMerger, name: str, piece: Piece) -> None:
        try:
            merger.take(self._recorded(name), piece)
        except BaseException:
            # Some of it may be in, which nobody could take out, and who tries again brings all of it: as an owner that
            # was begun anew, this one has nothing.
            self._held.clear()
            self._merger = None
            merger.close()
            raise
        self._held.add(name)

    def _recorded(self, name: str) -> str:
        # With the range: a run that owns others must not take this piece for all of its own.
        return f"{name}, of {self._range.rows}"

    def _opened(self) -> RangeMerger:
        if self._merger is not None:
            return self._merger
        folders, place = self._range.folders(), self._range.source.here()
        scratch, host = place.scratch, place.host
        record: BlockRecord[Part] = BlockRecord(
            folders.records, self._range.depends_on, encode=encode_part, decode=decode_part
        )
        file = RangeFile(folder=folders.result, name=self._range.file, rows=self._range.rows, host=host)
        merger = self._range.owned.merger(file, scratch, record)
        # Here, and not on the head, which has but its own disks to look at; and for all that share them, or each would
        # be promised the room that only one of them gets.
        needs = [(folders.result, merger.result_bytes), (scratch, merger.scratch_bytes)]
        try:
            check_room([(folder, size * self._range.on_instance) for folder, size in needs], where=host)
        except NoRoom:
            merger.close()
            raise
        self._record = record if folders.lasting or merger.keeps_pieces else None
        self._merger = merger
        return merger


def here(folders: Folders) -> Folders:
    """Return the folders of this instance."""
    if folders.on_instance is None:
        return folders
    # Whether anything lasts is decided once, on the head: instances that decide for themselves would record apart.
    return replace(folders.on_instance(), lasting=folders.lasting)

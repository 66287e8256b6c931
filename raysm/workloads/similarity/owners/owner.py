"""The owner of one range of rows: it takes in pieces of tiles, and writes the range's file of the result.

The head itself owns the only range of a result in one file. Each of several ranges belongs to an actor of Ray on some
instance. Where its process or instance is lost, Ray starts it again on another one, with nothing. Callers wait
meanwhile, and ``write`` then says that pieces are missing. What the owner recorded among the checkpoints it finds
again, where the folder is the same or the service has brought it back.

**Memory**: what its merger holds, and a piece at a time; others wait in Ray's object store, or on the disk that this
spills to. Calls are threads: an actor tells a range's bounds while it merges a piece.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.errors import NoRoom
from raysm.workloads.gather import check_room
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.modes.mode import OwnedRange, Piece, RangeMerger
from raysm.workloads.similarity.reading.ids import Ids
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.runs import Folders
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part

__all__ = ["Owner", "OwnerOrder", "folders_here"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerOrder:
    """All that an owner is told when it starts, wherever that is."""

    owned: OwnedRange
    """Its range."""
    merger: Callable[[OwnedRange, Path, Path, BlockRecord[Part]], RangeMerger]
    """Starts to merge the range; given it, the folders of the result and of the scratch, and the record."""
    on_instance: int = 1
    """Ranges that its instance owns: they share its disks."""
    source: Source
    """The matrix: it knows this instance's scratch."""
    folders: Callable[[], Folders]
    """Returns where this instance writes."""
    depends_on: Mapping[str, Any]
    """What its records depend on."""
    for_later: bool = False
    """See ``Mode.for_later``."""


class Owner:
    """One range, on the instance where this runs."""

    def __init__(self, order: OwnerOrder) -> None:
        """Open nothing yet: an error here would end an actor for good, and no caller would learn of it."""
        self._order = order
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
        """Return the lower bounds of these rows' scores that are known by now."""
        merger = self._merger
        if merger is None:
            with self._lock:
                merger = self._opened()
        # Without the lock: a bound only rises, and both the old and the new one are true.
        return merger.bounds(runs)

    def take(self, name: str, piece: Piece) -> None:
        """Take in a tile's piece; one that comes again, from a task that was tried again, is dropped.

        Raises:
            NoRoom: The disk became full.
        """
        with self._lock:
            merger = self._opened()
            if name in self._held:
                return
            # Recorded first: tasks may drop what does not reach the bounds that this piece raises.
            if self._record is not None:
                self._record.save(self._recorded(name), Part(arrays=piece, peaks={}, seconds=0.0))
            self._merge(merger, name, piece)

    def write(
        self, names: Sequence[str], ids: Ids | None, on_rows: Callable[[int], None] = lambda rows: None
    ) -> ResultFile | None:
        """Write the range; None: it lacks the piece of one of these tiles, because the owner was started again.

        Raises:
            NoRoom: The disk became full.
        """
        with self._lock:
            merger = self._opened()
            return merger.write(ids, on_rows) if self._held.issuperset(names) else None

    def end(self) -> None:
        """Remove what was recorded, which is in the result, and close what is open."""
        # Other owners of this instance have theirs in the same folder, and are as done with it.
        if self._record is not None:
            self._record.remove()
        self.close()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            if self._merger is not None:
                self._merger.close()

    def _merge(self, merger: RangeMerger, name: str, piece: Piece) -> None:
        try:
            merger.take(self._recorded(name), piece)
        except BaseException:
            # Some of it may be merged, and cannot be taken out again; the next try brings all of it. So this owner
            # forgets everything, as one that is started again does.
            self._held.clear()
            self._merger = None
            merger.close()
            raise
        self._held.add(name)

    def _recorded(self, name: str) -> str:
        # With the range: a run with other ranges must not take this piece for all of its own.
        return f"{name}, of {self._order.owned.rows}"

    def _opened(self) -> RangeMerger:
        if self._merger is not None:
            return self._merger
        order, folders, place = self._order, self._order.folders(), self._order.source.here()
        record: BlockRecord[Part] = BlockRecord(
            folders.records, order.depends_on, encode=encode_part, decode=decode_part, for_later=order.for_later
        )
        merger = order.merger(order.owned, folders.result, place.scratch, record)
        is_kept = folders.lasting or merger.keeps_pieces
        needs = [(folders.result, merger.result_bytes), (place.scratch, merger.scratch_bytes)]
        try:
            # For all ranges of this instance at once: each alone would be promised the room that only one of them gets.
            on_disks = [(folder, size * order.on_instance) for folder, size in needs]
            if is_kept:
                # What lies among the records already is not written again.
                on_disks.append((folders.records, merger.recorded_bytes - occupied_bytes(folders.records)))
            check_room(on_disks, where=place.host)
        except NoRoom:
            merger.close()
            raise
        self._record = record if is_kept else None
        self._merger = merger
        return merger


def folders_here(folders: Folders) -> Folders:
    """Return the folders of this instance."""
    if folders.on_instance is None:
        return folders
    # The head decides once whether anything lasts: instances that decide for themselves would record apart.
    return replace(folders.on_instance(), lasting=folders.lasting)

"""The owners of the result: each merges the pieces of a range of rows, and writes its file.

If there is one range, the head is its owner: parts come to it and are merged there. If there are
several, each belongs to a Ray actor on an instance. Tasks then send each piece to its owner
directly, through Ray's object store, and the ``Collector`` on the head learns only which tiles are
done. Each owner writes a file, or the head reads the merged rows of all owners and writes one file
(``HEAD_BYTES``).

**A lost owner.** If its process or instance is lost, Ray starts the owner again, if need be on
another instance, with only what it recorded among the checkpoints. Callers wait meanwhile. When all
tasks are done, the head asks each owner
for the tiles that it must hold. If an owner lacks any, the tiles that have rows of its range are
computed again: about twice their share of all tiles. Owners that have the pieces already drop the
new ones.

**Memory**: an owner takes what its merger holds and one piece at a time; other pieces wait in Ray's
object store, or on
the disk that the store spills to. Calls are threads: an actor returns the bounds of its range while
it merges a piece.
"""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysm.core.protocol.result import ResultFile
from raysm.errors import BlockFailed, NoRoom, RaysmError
from raysm.features.similarity.cluster.modes.mode import (
    Mode,
    OwnedRange,
    Piece,
    RangeMerger,
    Ranges,
)
from raysm.features.similarity.cluster.reading.columns import Ids
from raysm.features.similarity.cluster.reading.matrix import Source
from raysm.features.similarity.cluster.run import Folders, Run
from raysm.features.similarity.cluster.tasks import (
    Comparing,
    Context,
    Part,
    TileTask,
    decode_part,
    encode_part,
)
from raysm.features.similarity.cluster.tiling import (
    RowOrder,
    RowRun,
    find_runs,
    keep_numbers,
    split_rows,
)
from raysm.instance.work.gather import check_room
from raysm.instance.work.nodes import cluster_nodes, inputs_of
from raysm.instance.work.record import BlockRecord, occupied_bytes
from raysm.instance.work.report import ProgressThrottle
from raysm.instance.work.row_blocks import RowBlock, TileBlock


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerOrder:
    """The arguments of an owner; they do not depend on the instance on which it starts."""

    owned: OwnedRange
    mode: Mode
    on_instance: int = 1
    """Number of ranges that this instance owns: they share its disks."""
    writes: bool = True
    """False if the head reads the merged rows and writes them."""
    source: Source
    """The matrix, which also knows this instance's scratch folder."""
    folders: Callable[[], Folders]
    depends_on: Mapping[str, Any]


class Owner:
    def __init__(self, order: OwnerOrder) -> None:
        """Open nothing yet: an error here would end the actor, unseen by callers."""
        self._order = order
        self._lock = threading.Lock()
        self._merger: RangeMerger | None = None
        self._record: BlockRecord[Part] | None = None
        self._held: set[str] = set()
        self._token = ""

    def hold(self, names: Sequence[str]) -> list[bool]:
        """Merge the pieces of these tiles that an earlier owner recorded.

        Return which tiles' pieces are here.
        """
        with self._lock:
            merger = self._open_merger()
            # Load one after the other: together, the pieces of a large range are many times what
            # the merger holds.
            for name in names:
                recorded = self._record_name(name)
                if self._record is not None and name not in self._held and recorded in self._record:
                    self._merge(merger, name, self._record.load(recorded).arrays)
            return [name in self._held for name in names]

    def bounds(self, runs: Sequence[RowRun]) -> NDArray[np.float32]:
        """Return the lower bounds of these rows' scores that are known by now."""
        merger = self._merger
        if merger is None:
            with self._lock:
                merger = self._open_merger()
        # No lock is needed: bounds only rise, and both the old and the new one are valid.
        return merger.bounds(runs)

    def take(self, name: str, piece: Piece) -> None:
        """Merge a tile's piece; drop one that a retried task sends again."""
        with self._lock:
            merger = self._open_merger()
            if name in self._held:
                return
            # Record before merging: the piece raises bounds, and tasks then drop results below
            # them.
            if self._record is not None:
                self._record.save(
                    self._record_name(name), Part(arrays=piece, peaks={}, seconds=0.0)
                )
            self._merge(merger, name, piece)

    def write(
        self,
        names: Sequence[str],
        ids: Ids | None,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> ResultFile | None:
        """Write the range; return None if it lacks the piece of one of these tiles."""
        with self._lock:
            merger = self._open_merger()
            return merger.write(ids, on_rows) if self._held.issuperset(names) else None

    def claim(self, names: Sequence[str]) -> str | None:
        """Return a token for ``read``; None if the piece of one of these tiles is not here."""
        with self._lock:
            self._open_merger()
            return self._token if self._held.issuperset(names) else None

    def read(self, token: str, start: int, stop: int) -> NDArray[Any] | None:
        """Return merged rows; None if what was merged was lost since the token was given."""
        with self._lock:
            merger = self._open_merger()
            return merger.read(start, stop) if token == self._token else None

    def end(self) -> None:
        # Other owners of this instance record in the same folder; they have written their ranges
        # too.
        if self._record is not None:
            self._record.remove()

    def close(self) -> None:
        with self._lock:
            if self._merger is not None:
                self._merger.close()

    def _merge(self, merger: RangeMerger, name: str, piece: Piece) -> None:
        try:
            merger.take(self._record_name(name), piece)
        except BaseException:
            # Part of the piece may be merged already, which cannot be undone. So this owner forgets
            # everything, like an owner that was started again, and the next try merges all of it.
            self._held.clear()
            self._merger = None
            merger.close()
            raise
        self._held.add(name)

    def _record_name(self, name: str) -> str:
        # The name has the range: for a run with other ranges this piece is incomplete.
        return f"{name}, of {self._order.owned.rows}"

    def _open_merger(self) -> RangeMerger:
        if self._merger is not None:
            return self._merger
        order = self._order
        folders = self._order.folders()
        location = self._order.source.here()
        record: BlockRecord[Part] = BlockRecord(
            folders.records,
            order.depends_on,
            encode=encode_part,
            decode=decode_part,
            for_later=order.mode.for_later,
        )
        merger = order.mode.merger(order.owned, folders.result, location.scratch, record)
        is_kept = folders.is_durable or merger.keeps_pieces
        needs = [(location.scratch, merger.scratch_bytes)]
        if order.writes:
            needs.append((folders.result, merger.result_bytes))
        try:
            # Check the room for all ranges of this instance: each alone might fit, but not all of
            # them together.
            on_disks = [(folder, size * order.on_instance) for folder, size in needs]
            if is_kept:
                # Pieces that are recorded already, by the owners of all these ranges, are not
                # written again.
                recorded_bytes = merger.recorded_bytes * order.on_instance
                on_disks.append(
                    (folders.records, max(0, recorded_bytes - occupied_bytes(folders.records)))
                )
            check_room(on_disks, where=location.host)
        except NoRoom:
            merger.close()
            raise
        self._record = record if is_kept else None
        self._merger = merger
        self._token = uuid.uuid4().hex
        return merger


def instance_folders(folders: Folders) -> Folders:
    if folders.on_instance is None:
        return folders
    # The head alone decides whether records last: otherwise some instances might record and others
    # not.
    return replace(folders.on_instance(), is_durable=folders.is_durable)


MAX_RESTARTS = 8
"""Most restarts of an owner. An owner that ends more often is the cause itself: if an instance is
short of memory, for example, Ray ends owners before tasks, and the range would be computed again
and again."""

CALLS = 16
"""Calls that an owner handles at a time: one merges, the others return bounds or wait with their
pieces."""

HEAD_BYTES = 256 << 20
"""Most bytes of merged rows for which the tasks' parts come to the head, if one file is asked for.
The parts are several times as many: 6 times with three instances, 40,000 rows and k = 10."""

READ_BYTES = 16 << 20
"""About this many bytes of merged rows come to the head at a time."""

AHEAD = 2
"""Reads that are on their way to the head while it writes the rows of an earlier one."""

RANGES = "ranges"
"""File in the record's folder with the number of ranges that the first run chose."""

DONE = Part(arrays={}, peaks={}, seconds=0.0)


class Collector:
    """The head's record of which owner has the pieces of which tile."""

    def __init__(
        self,
        mode: Mode,
        run: Run,
        tasks: Sequence[TileTask],
        row_order: RowOrder,
        record: BlockRecord[Any],
        count: int = 1,
        *,
        in_strips: bool = False,
        one_file: bool = False,
    ) -> None:
        """Start the owners of ``count`` ranges; with a single range, the head owns it.

        With ``one_file`` the head writes what the owners have merged. The owners' records depend on
        the same values as ``record``. ``in_strips``: each task has all columns, and the tasks' rows
        follow each other.
        """
        self._mode = mode
        self._run = run
        self._ranges = mode.ranges(run.queries.rows, count, self_join=run.self_join)
        self.is_local = len(self._ranges) == 1
        self._one_file = one_file and not self.is_local
        if self._one_file:
            mode.check_room(run.folders.result, run.queries.rows)
        orders = _orders(mode, run, self._ranges, row_order, record, in_strips, self._one_file)
        self._owners: list[Any] = (
            [Owner(order) for order in orders] if self.is_local else _start_owners(orders)
        )
        self.comparing: Comparing = mode
        self.note = ""
        if not self.is_local:
            self.comparing = Handover(mode=mode, ranges=self._ranges, owners=self._owners)
            self.note = f"each of {len(self._ranges)} ranges of rows is merged " + (
                "by an instance, and the head writes one file"
                if one_file
                else "and written by its instance, into its own file"
            )
        self._touched: dict[tuple[int, int], set[int]] = {}
        self._done: dict[str, TileTask] = {}
        self._asked: set[str] = set()
        self.recorded = _OwnersRecord(self)
        # Ask for all tiles at once: the owners load what they recorded in parallel.
        self._look_for(tasks)

    def add_hint(self, task: TileTask) -> TileTask:
        """Return the task with what the head knows of its rows.

        Tasks ask owners on other instances themselves.
        """
        if not self.is_local:
            return task
        return self._mode.add_hint(
            task, lambda numbers: self._owners[0].bounds(list(find_runs(numbers)))
        )

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Note that a tile is done, and merge its part if it came here.

        Return the pieces of one that was given up.
        """
        again = self._mode.split_given_up(task, part.arrays)
        if not again and str(task) not in self._done:
            if self.is_local:
                for _, piece in self._mode.split(task, part.arrays, self._ranges):
                    self._owners[0].take(str(task), piece)
            # Drop the rows that were sent for the task: they stay in the object store while it
            # refers to them.
            inputs: dict[str, Any] = {"inputs": ()} if inputs_of(task) else {}
            self._done[str(task)] = replace(task, hint=None, **inputs)
        return again

    def holds(self, task: TileTask) -> bool:
        # Pieces of a tile that was given up were not among the tasks at the start.
        if str(task) not in self._asked and self._run.folders.is_durable:
            self._look_for([task])
        return str(task) in self._done

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...] | None:
        """Have every range written; return None if an owner was lost with its tiles."""
        tasks = list(self._done.values())
        # An owner that was started again first loads its records, so that those tiles need not be
        # computed.
        self._look_for(tasks)
        if len(self._done) < len(tasks):
            return None
        ids = self._run.ids()
        names = self._names(tasks)
        if self.is_local:
            written = [self._owners[0].write(names[0], ids, throttle.add)]
        elif self._one_file:
            written = [self._write_one_file(names, ids, throttle)]
        else:
            # Put once: Ray then copies the ids from instance to instance, whereas the head would
            # send an argument to each.
            put = ray.put(ids)
            calls = [owner.write.remote(names[at], put) for at, owner in enumerate(self._owners)]
            written = []
            for rows, call in zip(self._ranges, calls, strict=True):
                written += _wait_for([call])
                if written[-1] is not None:
                    throttle.add(rows.rows)
        files = [file for file in written if file is not None]
        if len(files) < len(written):
            self._look_for(tasks)
            return None
        return (*files, *self._mode.write_extra_files(self._run.folders.result, ids))

    def _write_one_file(
        self, names: Sequence[Sequence[str]], ids: Ids | None, throttle: ProgressThrottle
    ) -> ResultFile | None:
        tokens = self._ask("claim", [(some,) for some in names])
        if None in tokens:
            return None
        merged = _MergedRows(self._owners, tokens, self._ranges, self._mode.merged_row_bytes)
        rows = self._run.queries.rows
        try:
            return self._mode.write_merged(
                self._run.folders.result, rows, merged.read, ids, throttle.add
            )
        except _MergedRowsLost:
            return None

    def remove_records(self) -> None:
        self._ask("end", [()] * len(self._owners))

    def close(self) -> None:
        for owner in self._owners:
            if self.is_local:
                owner.close()
            else:
                # Kill the actor: it may be merging for seconds, and a regular end waits for all
                # earlier calls. That is safe, because files get their names only when they are
                # complete.
                ray.kill(owner)

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of each owner with its own arguments, all at the same time.

        Return the answers.
        """
        if self.is_local:
            return [getattr(self._owners[0], method)(*arguments[0])]
        return _wait_for(
            [
                getattr(owner, method).remote(*some)
                for owner, some in zip(self._owners, arguments, strict=True)
            ]
        )

    def _look_for(self, tasks: Sequence[TileTask]) -> None:
        names = self._names(tasks)
        self._asked.update(map(str, tasks))
        missing = set()
        for some, answers in zip(
            names, self._ask("hold", [(some,) for some in names]), strict=True
        ):
            missing |= {name for name, is_there in zip(some, answers, strict=True) if not is_there}
        for task in tasks:
            if str(task) in missing:
                self._done.pop(str(task), None)
            else:
                self._done[str(task)] = task

    def _names(self, tasks: Iterable[TileTask]) -> list[list[str]]:
        names: list[list[str]] = [[] for _ in self._ranges]
        for task in tasks:
            touched = self._touched_ranges(task.tile.rows, task.row_numbers)
            if task.mirrored:
                touched = touched | self._touched_ranges(task.tile.columns, task.column_numbers)
            for at in sorted(touched):
                names[at].append(str(task))
        return names

    def _touched_ranges(self, block: RowBlock, numbers: Any) -> set[int]:
        if self.is_local:
            return {0}
        # Once for each block, not for each of its many tiles.
        key = block.start, block.stop
        if key not in self._touched:
            places = np.arange(block.start, block.stop)
            self._touched[key] = {at for at, _ in self._ranges.of(numbers(places))}
        return self._touched[key]


class _MergedRowsLost(Exception):
    """An owner was started again, and lacks pieces that it had."""


class _MergedRows:
    """The merged rows of all owners, which are read once, from the first to the last."""

    def __init__(
        self, owners: Sequence[Any], tokens: Sequence[str], ranges: Ranges, row_bytes: int
    ) -> None:
        size = max(1, READ_BYTES // row_bytes)
        self._waiting = deque(
            (block, partial(owner.read.remote, token, block.start, block.stop))
            for owner, token, rows in zip(owners, tokens, ranges, strict=True)
            for block in split_rows(rows, size)
        )
        self._coming: deque[tuple[RowBlock, Any]] = deque()
        self._block = RowBlock(0, 0)
        self._rows: NDArray[Any] | None = None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        found = []
        while start < stop:
            if start >= self._block.stop:
                self._advance()
            assert self._rows is not None
            end = min(stop, self._block.stop)
            found.append(self._rows[start - self._block.start : end - self._block.start])
            start = end
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _advance(self) -> None:
        # Free the rows before the next ones are asked for.
        self._rows = None
        while self._waiting and len(self._coming) <= AHEAD:
            block, ask = self._waiting.popleft()
            self._coming.append((block, ask()))
        self._block, call = self._coming.popleft()
        (self._rows,) = _wait_for([call])
        if self._rows is None:
            raise _MergedRowsLost


@dataclass(frozen=True, slots=True)
class _OwnersRecord:
    collector: Collector

    def __contains__(self, block: Any) -> bool:
        return self.collector.holds(block)

    def save(self, block: object, value: Part) -> None:
        """Do nothing: the owners record pieces as they take them in."""

    def load(self, block: object) -> Part:
        return DONE


def _orders(
    mode: Mode,
    run: Run,
    ranges: Ranges,
    row_order: RowOrder,
    record: BlockRecord[Any],
    in_strips: bool,
    one_file: bool,
) -> list[OwnerOrder]:
    zero = run.context.queries.norms == 0
    runs = row_order.between(0, run.queries.rows)
    numbers = [np.flatnonzero(zero[one.offset : one.offset + one.rows]) + one.start for one in runs]
    zero_rows = np.concatenate(numbers)
    several = len(ranges) > 1
    hosts = len(owning_nodes()) if several else 1
    return [
        OwnerOrder(
            owned=OwnedRange(
                rows=rows,
                columns=run.matrix.rows,
                self_join=run.self_join,
                zero_rows=zero_rows,
                in_strips=in_strips,
                part=f"part-{at:05d}-of-{len(ranges):05d}" if several and not one_file else "",
            ),
            mode=mode,
            writes=not one_file,
            on_instance=len(range(at % hosts, len(ranges), hosts)),
            source=run.context.matrix.source,
            # As the only owner, the head writes to the run's own folders, not to those of its
            # instance.
            folders=partial(instance_folders, run.folders) if several else lambda: run.folders,
            depends_on=record.depends_on,
        )
        for at, rows in enumerate(ranges)
    ]


def count_ranges(mode: Mode, rows: int, parts: int | None, record: BlockRecord[Any]) -> int:
    """Return how many ranges of rows to merge: a file for each, or all in one file of the head.

    The head merges alone up to ``HEAD_BYTES``: owners take a second to start.
    """
    if (parts or 1) > 1 or rows * mode.merged_row_bytes <= HEAD_BYTES:
        return parts or 1
    # An earlier run of the job may have had another number of instances, and recorded pieces are of
    # use only to a run with the same ranges.
    return keep_numbers(record.folder / RANGES, (len(owning_nodes()),), most=rows)[0]


def owning_nodes() -> list[Any]:
    # A head that only coordinates owns nothing: it has a small disk and no rows.
    return [node for node in cluster_nodes() if node.cpus]


def _start_owners(orders: Sequence[OwnerOrder]) -> list[Any]:
    # If an owner dies, Ray starts it again and repeats its calls.
    actor = ray.remote(
        num_cpus=0, max_restarts=MAX_RESTARTS, max_task_retries=-1, max_concurrency=CALLS
    )(Owner)
    nodes = owning_nodes()
    return [
        actor.options(
            # Soft: if this instance is lost, another one owns the range.
            scheduling_strategy=NodeAffinitySchedulingStrategy(
                nodes[at % len(nodes)].node_id, soft=True
            )
        ).remote(order)
        for at, order in enumerate(orders)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """Compares as its mode does, and sends each owner its piece of the result.

    This object is sent to the tasks.
    """

    mode: Mode
    ranges: Ranges
    owners: Sequence[Any]
    """The actors, one for each range; a handle stays valid when Ray starts its actor again."""

    def compare(self, context: Context, task: TileTask) -> Piece:
        """Do one task; return nothing, or the arrays that say that it was given up."""
        arrays = self.mode.compare(context, self.mode.add_hint(task, self._bounds))
        if self.mode.split_given_up(task, arrays):
            return arrays
        # Send all pieces at once, so that the owners merge in parallel. Then wait: otherwise tasks
        # would finish before their pieces are merged, and more and more pieces would fill the
        # object store.
        pieces = self.mode.split(task, arrays, self.ranges)
        _wait_for([self.owners[at].take.remote(str(task), piece) for at, piece in pieces])
        return {}

    def _bounds(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        references = [
            self.owners[at].bounds.remote(list(find_runs(numbers[some])))
            for at, some in self.ranges.of(numbers)
        ]
        # A tile on the diagonal has no columns of its own to ask about.
        return (
            np.concatenate(_wait_for(references)) if references else np.empty(0, dtype=np.float32)
        )


def _wait_for(calls: Sequence[Any]) -> list[Any]:
    """Return what owners answered; ``BlockFailed`` if one died on every start."""
    try:
        answers: list[Any] = ray.get(list(calls))
        return answers
    except RayTaskError as error:
        # Raise the owner's own error instead of Ray's wrapper, which no caller handles.
        if isinstance(error.cause, RaysmError):
            raise error.cause from None
        raise
    except RayActorError as error:
        block = "a range of the result, on the instance that owns it,"
        raise BlockFailed(block, MAX_RESTARTS + 1, str(error), type(error).__name__) from None

"""The head's side of a result that instances own: it begins the owners, notes which tiles are done, and asks for files.

What flows in are names of tiles, what flows out is who has what. No part of the result comes here.

**A lost instance** takes along the ranges that it owned. Ray begins their owners anew elsewhere, empty; tasks that hand
something over wait until then. When all tasks are done, each owner is told which tiles it must hold; one that lacks
any says so, and the tiles that have rows of its range are computed again: about twice their share of all tiles. Pieces
for other owners, which have them, are dropped there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysm.contract.result import ResultFile
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.nodes import cluster_nodes
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.modes.mode import Collector, Mode, Tiling
from raysm.workloads.similarity.owning.handover import RESTARTS, Handover, answers_of
from raysm.workloads.similarity.owning.owned import Owned
from raysm.workloads.similarity.owning.owner import OwnedRange, Owner, here
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.runs import Run
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import TileTask

__all__ = ["DONE", "OwnedCollector"]

CALLS = 16
"""Calls that an owner answers at a time: one merges, the others tell bounds or wait with what they bring."""

DONE = Part(arrays={}, peaks={}, seconds=0.0)
"""What the head knows of a tile that is done."""


class OwnedCollector(Collector):
    """Which owner has the pieces of which tile."""

    def __init__(self, mode: Mode, owned: Owned, run: Run, tiles: Tiling, record: BlockRecord[Any], count: int) -> None:
        """Begin the owners, one after the other on each instance that computes."""
        self._owned, self._run = owned, run
        self._ranges = owned.ranges(run.queries.rows, count)
        self._owners = _begun(owned, run, self._ranges, record)
        self.comparing = Handover(mode=mode, owned=owned, ranges=self._ranges, owners=self._owners)
        self.note = (
            f"each of {len(self._ranges)} ranges of rows is merged and written by the instance that owns it, into a "
            "file of its own"
        )
        self._touched: dict[tuple[int, int], set[int]] = {}
        self._done: dict[str, TileTask] = {}
        self._asked: set[str] = set()
        self.recorded = _Held(self)
        # All at once: each owner takes in what it recorded of them, beside the others.
        self._look_for(tiles.tasks)

    def take(self, task: TileTask, part: Part) -> Sequence[TileBlock]:
        """Note that a tile's pieces are where they belong; return the pieces of one that was given up."""
        again = self._owned.given_up(task, part.arrays)
        if not again:
            self._done[str(task)] = task
        return again

    def holds(self, task: TileTask) -> bool:
        """Return whether every owner of its rows has the pieces of a tile."""
        # Pieces of a tile that was given up are not among those that were asked for at the beginning.
        if str(task) not in self._asked and self._run.folders.lasting:
            self._look_for([task])
        return str(task) in self._done

    def gather(self, throttle: ProgressThrottle) -> tuple[ResultFile, ...] | None:
        """Have every range written; None: an owner was lost, and tiles have to be computed again.

        They are those that ``holds`` denies from now on.
        """
        tasks = list(self._done.values())
        # What was begun anew meanwhile takes in first what is recorded: that need not be computed.
        self._look_for(tasks)
        if len(self._done) < len(tasks):
            return None
        # Put once: Ray hands it on from instance to instance, where an argument would leave the head for each.
        ids, names = self._run.ids(), self._names(tasks)
        put = ray.put(ids)
        calls = [owner.write.remote(names[at], put) for at, owner in enumerate(self._owners)]
        files: list[ResultFile] = []
        for at, (rows, call) in enumerate(zip(self._ranges, calls, strict=True)):
            (written,) = answers_of([call])
            if written is None:
                self._look_for(tasks, only=at)
                continue
            files.append(written.file)
            throttle.add(rows.rows)
        if len(files) < len(self._ranges):
            return None
        return (*files, *self._owned.write_beside(self._run.folders.result, ids))

    def remove_records(self) -> None:
        """Have the owners remove what they recorded: it is in the result."""
        answers_of([owner.end.remote() for owner in self._owners])

    def close(self) -> None:
        """End the owners."""
        for owner in self._owners:
            # By force, since one may be merging for seconds, and an ordinary end waits for what was called before it.
            # Whatever it still does nobody waits for: what it wrote is whole, or has no name.
            ray.kill(owner)

    def _look_for(self, tasks: Sequence[TileTask], only: int | None = None) -> None:
        """Ask the owners, or one of them, which of these tiles' pieces they have."""
        names = self._names(tasks)
        self._asked.update(map(str, tasks))
        numbers = range(len(self._owners)) if only is None else [only]
        answers = answers_of([self._owners[at].hold.remote(names[at]) for at in numbers])
        missing = {
            name
            for at, some in zip(numbers, answers, strict=True)
            for name, is_there in zip(names[at], some, strict=True)
            if not is_there
        }
        for task in tasks:
            if str(task) in missing:
                self._done.pop(str(task), None)
            else:
                self._done[str(task)] = task

    def _names(self, tasks: Iterable[TileTask]) -> list[list[str]]:
        """Return the names of the tiles that have rows of each range."""
        names: list[list[str]] = [[] for _ in self._ranges]
        for task in tasks:
            touched = self._of(task.tile.rows, task.row_numbers)
            if task.mirrored:
                touched = touched | self._of(task.tile.columns, task.column_numbers)
            for at in sorted(touched):
                names[at].append(str(task))
        return names

    def _of(self, block: RowBlock, numbers: Any) -> set[int]:
        # Of a block once, not of each of its tiles: those are many, and as long as the block.
        key = block.start, block.stop
        if key not in self._touched:
            places = np.arange(block.start, block.stop)
            self._touched[key] = {at for at, _ in self._ranges.of(numbers(places))}
        return self._touched[key]


@dataclass(frozen=True, slots=True)
class _Held:
    """What the owners have, as ``map_blocks`` asks a record."""

    collector: OwnedCollector

    def __contains__(self, block: Any) -> bool:
        return self.collector.holds(block)

    def save(self, block: object, value: Part) -> None:
        """Do nothing: the owners have recorded it, before the task was done."""

    def load(self, block: object) -> Part:
        """Return what the head knows of it."""
        return DONE


def _begun(owned: Owned, run: Run, ranges: Ranges, record: BlockRecord[Any]) -> list[Any]:
    # Dead for no reason of its own, an owner is begun anew, and its callers ask again.
    actor = ray.remote(num_cpus=0, max_restarts=RESTARTS, max_task_retries=-1, max_concurrency=CALLS)(Owner)
    # A head that only coordinates has no disk to speak of, and no rows: nothing is owned there.
    nodes = [node for node in cluster_nodes() if node.cpus]
    folders = partial(here, run.folders)
    source = run.context.matrix.source
    return [
        # Soft: where this instance is lost, another one is to own the range.
        actor.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[at % len(nodes)].node_id, soft=True),
        ).remote(
            OwnedRange(
                owned=owned,
                rows=rows,
                file=f"part-{at:05d}-of-{len(ranges):05d}",
                on_instance=len(range(at % len(nodes), len(ranges), len(nodes))),
                source=source,
                folders=folders,
                depends_on=record.depends_on,
            )
        )
        for at, rows in enumerate(ranges)
    ]

"""Rows that lie whole on every instance: any of them computes any tile, and no row travels."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.layouts.layout import Dispatch, Layout, Queue
from raysm.workloads.similarity.modes import Collector, Mode
from raysm.workloads.similarity.runs import Run
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part, measured
from raysm.workloads.similarity.tasks.tile_task import Comparing, FreeTile

__all__ = ["Replicated", "TileQueue"]


@dataclass(frozen=True)
class Replicated(Layout):
    """Every instance has all rows."""

    suffix: ClassVar[str] = ""

    def cut(self, run: Run, mode: Mode, sizing: Sizing, record: BlockRecord[Any]) -> Dispatch:
        """Cut all pairs into the mode's tiles, or those into groups whose parts are merged on the instances."""
        return _Dispatch(self, run, mode, sizing, record)


class _Dispatch(Dispatch):
    """Tiles for whoever is free."""

    def __init__(self, layout: Layout, run: Run, mode: Mode, sizing: Sizing, record: BlockRecord[Any]) -> None:
        tiles = mode.tiles(sizing, record, self_join=run.context.self_join)
        self._groups = mode.groups(run, tiles, record, sizing)
        self._task_options = sizing.footprint.task
        self.tasks: list[FreeTile] = tiles if self._groups is None else self._groups.tasks
        self.row_order = layout.operands[-1].order
        self.in_strips = mode.in_strips
        self.note = "" if self._groups is None else self._groups.note

    def queue(self, collector: Collector) -> Queue:
        """Begin to dispatch."""
        return TileQueue(self.tasks, collector)

    def function(self, mode: Comparing, context: Context) -> Callable[..., Part]:
        """Return what is called for each tile, or for each group."""
        compare = partial(measured, mode.compare, context)
        return compare if self._groups is None else self._groups.function(compare)

    def options(self, queue: Queue) -> Mapping[str, Any]:
        """Return what a task needs: one that merges a group needs no CPU of its own."""
        if self._groups is None:
            return self._task_options
        # It mostly waits, and a CPU that it held would be missing to the tiles that it waits for.
        return {"num_cpus": 0, "in_flight": self._groups.at_once}


class TileQueue(Iterator[Any]):
    """Tiles in their order; pieces of one that was given up come next."""

    def __init__(self, tasks: Sequence[FreeTile], collector: Collector) -> None:
        """Begin with all of them."""
        self._collector = collector
        self._waiting = deque(tasks)
        self._unfinished = 0

    def __next__(self) -> Any:
        """Return a tile, with what is known of it now; or ``LATER``, while one may still be given up."""
        if self._waiting:
            task = self._waiting.popleft()
            self._unfinished += 1
            return replace(task, hint=self._collector.hint(task))
        # One of them may still be given up, and come back in pieces.
        if self._unfinished:
            return LATER
        raise StopIteration

    def finished(self, task: FreeTile, pieces: Sequence[TileBlock]) -> Sequence[FreeTile]:
        """Say that a task has its part; return the tasks of the pieces."""
        self._unfinished -= 1
        # Without the hint, which is old by now: each is told anew when it is dispatched.
        again = [replace(task, tile=_moved(piece, task.tile), hint=None) for piece in pieces]
        # ``extendleft`` alone would turn their order round.
        self._waiting.extendleft(reversed(again))
        return again


def _moved(piece: TileBlock, tile: TileBlock) -> TileBlock:
    rows, columns = tile.rows.start, tile.columns.start
    return TileBlock(
        RowBlock(rows + piece.rows.start, rows + piece.rows.stop),
        RowBlock(columns + piece.columns.start, columns + piece.columns.stop),
    )

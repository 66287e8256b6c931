"""Parts of many tiles, merged on the instances: the tree of top-k, where the head could not take in each of them.

The head dispatches *groups*: squares of tiles, or the triangle of one on the diagonal. To the head a group is one
block, and one entry of its record. A task that needs no CPU of its own dispatches the group's tiles to whichever slots
of the cluster are free, merges their parts as they come, and hands back one part. So a tile's part travels to the
instance where its group is merged, and only the group's best leave that one. ``Sizing.group_tiles`` says where it pays,
and how large groups are.

Lower bounds come from two sides: what the head knew when it dispatched the group, and what the group knows when it
dispatches a tile. Neither changes the answer. An instance that is lost costs the groups that were merged there, and of
those that were merged elsewhere the tiles that it had.

**Memory of a merging task** of a group of n rows and m columns: ``(n + m) 8 k`` for the best, at most ``PART_BYTES``,
as much for what is handed back, and one part of a tile with three times as much again for merging it. What tiles hand
back stays where it was made until it is merged: ``in_flight`` parts of each group, twice the slots' of all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY
from raysm.workloads.similarity.arithmetic.topk_accumulator import join
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.modes.topk_tile import TileBounds, best_arrays
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part, peak_memory_bytes
from raysm.workloads.similarity.tasks.tile_task import FreeTile, TileTask

__all__ = ["TileGroup", "TileGroups", "groups_of"]


class TileGroup:
    """The best k of the rows and columns of one group, while its tiles are computed."""

    def __init__(self, k: int, group: TileTask) -> None:
        """Begin with what the head told of it."""
        self._tile, bounds = group.tile, group.hint
        self._max_tile_rows = bounds.max_tile_rows
        self._rows = _nobody(bounds.row_bounds, k)
        # On the diagonal the columns are the rows: whoever is found as either is found for the same row.
        self._columns = _nobody(bounds.column_bounds, k) if group.mirrored else self._rows

    def task(self, tile: TileBlock) -> FreeTile:
        """Return one of its tiles with what is known of it by now."""
        rows = _part(self._rows, self._tile.rows, tile.rows).lowest()
        mirrored = tile.rows != tile.columns
        columns = _part(self._columns, self._tile.columns, tile.columns).lowest() if mirrored else rows[:0]
        return FreeTile(tile, True, TileBounds(rows, columns, self._max_tile_rows))

    def take(self, tile: TileBlock, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take in what a tile's task found."""
        # Into views: what a tile found stands in the group's best at once.
        join(_part(self._rows, self._tile.rows, tile.rows).keys, arrays["counts"], arrays["keys"])
        if "column_counts" in arrays:
            columns = _part(self._columns, self._tile.columns, tile.columns).keys
            join(columns, arrays["column_counts"], arrays["column_keys"])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what ``topk_tile`` would have found of the whole group."""
        return best_arrays(self._rows, self._columns)


def _nobody(lower_bounds: NDArray[np.float32], k: int) -> Best:
    return Best(np.full((len(lower_bounds), k), EMPTY_KEY, dtype=np.uint64), lower_bounds)


def _part(best: Best, block: RowBlock, part: RowBlock) -> Best:
    rows = slice(part.start - block.start, part.stop - block.start)
    return Best(best.keys[rows], best.lower_bounds[rows])


@dataclass(frozen=True, kw_only=True, slots=True)
class TileGroups:
    """How the parts of tiles are merged on the instances."""

    k: int
    """How many neighbors."""
    source: Source
    """Who knows the name of an instance."""
    tile_rows: int
    """Rows, and columns, of a tile."""
    tasks: list[FreeTile]
    """The groups."""
    at_once: int
    """How many are merged at a time."""
    in_flight: int
    """Most unfinished tiles of each."""
    note: str = ""
    """What is to be said of it."""

    def function(self, tile_task: Callable[[TileTask], Part]) -> Callable[[TileTask], Part]:
        """Return what is called for each group; what is called for each tile is shipped once."""
        return partial(_merge, self.k, self.source, self.tile_rows, self.in_flight, ray.put(tile_task))


def groups_of(
    k: int, context: Context, tiles: Sequence[FreeTile], record: BlockRecord[Any], sizing: Sizing
) -> TileGroups | None:
    """Return the groups in which these tiles of the triangle are merged on the instances; None: the head merges all.

    Not those of queries, which are cut so that little is left to merge.
    """
    # Where instances own ranges of rows, each part goes to the owners of its rows, and none to the head.
    if not context.self_join or sizing.range_count(record):
        return None
    # Of the first, which is as large as any: only the last block of rows may be smaller.
    size = tiles[0].tile.rows.rows
    merged = sizing.group_tiles(record, size)
    if merged == 1:
        return None
    tasks = [FreeTile(tile, True) for tile in tiling.triangle(sizing.matrix.rows, size * merged)]
    at_once = min(len(tasks), sizing.mergers)
    return TileGroups(
        k=k,
        source=context.matrix.source,
        tile_rows=size,
        tasks=tasks,
        at_once=at_once,
        # As many as keep the slots busy, all groups together, and as many to come.
        in_flight=math.ceil(2 * sizing.slots / at_once),
        note=(
            f"the parts of {len(tiles)} tiles are merged on the instances, in {len(tasks)} groups, {at_once} at a time"
        ),
    )


def _merge(k: int, source: Source, tile_rows: int, in_flight: int, function: Any, task: TileTask) -> Part:
    group = TileGroup(k, task)
    peaks: dict[str, int] = {}
    engines: set[str] = set()
    seconds = 0.0
    # Made one by one, as they are dispatched: each is told what the group knows by then.
    tiles = map(group.task, tiling.cut(task.tile, tile_rows))
    for done, part in map_blocks(function, tiles, in_flight=in_flight):
        group.take(done.tile, part.arrays)
        engines.update(part.engines)
        seconds += part.seconds
        peaks |= {host: max(peak, peaks.get(host, 0)) for host, peak in part.peaks.items()}
    arrays, own_host = group.arrays(), source.here().host
    # It may be a head that computes no tile, which is not among those that did.
    if own_host in peaks:
        peaks[own_host] = max(peaks[own_host], peak_memory_bytes())
    return Part(arrays=arrays, peaks=peaks, seconds=seconds, engines=tuple(sorted(engines)))

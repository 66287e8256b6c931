"""Parts of many tiles, merged on the instances: the tree of top-k, where the head could not take in each of them.

The head deals *groups*: squares of tiles, or the triangle of one on the diagonal. To the head a group is one block, and
one entry of its record. A task that needs no CPU of its own deals the group's tiles to whichever slots of the cluster
are free, merges their parts as they come, and hands back one part. So a tile's part travels to the instance where its
group is merged, and only the group's best leave that one. ``sizes.merged_tiles`` says where it pays, and how large
groups are.

Floors come from two sides: what the head knew when it dealt the group, and what the group knows when it deals a tile.
Neither changes the answer. An instance that is lost costs the groups that were merged there, and of those that were
merged elsewhere the tiles that it had.

**Memory of a merging task** of a group of n rows and m columns: ``(n + m) 8 k`` for the best, at most ``PART_BYTES``,
as much for what is handed back, and one part of a tile with three times as much again for merging it. What tiles hand
back stays where it was made until it is merged: ``in_flight`` parts of each group, twice the slots' of all.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from raysm.bootstrap.log import remark
from raysm.workloads.blocks import RowBlock, TileBlock, instances, map_blocks, task_slots
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import NOBODY
from raysm.workloads.similarity.arithmetic.topk_accumulator import join
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.modes.topk import Deal, found_arrays
from raysm.workloads.similarity.sizing import sizes
from raysm.workloads.similarity.tasks.context import Source, peak_memory_bytes
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.work import Work

__all__ = ["Group", "Groups", "groups_of"]


class Group:
    """The best k of the rows and columns of one group, while its tiles are computed."""

    def __init__(self, k: int, deal: Deal) -> None:
        """Begin with what the head told of it."""
        self._deal = deal
        self._rows = _nobody(deal.row_floors, k)
        self._columns = self._rows if self._once else _nobody(deal.column_floors, k)

    @property
    def _once(self) -> bool:
        return self._deal.tile.rows == self._deal.tile.columns

    def deal(self, tile: TileBlock) -> Deal:
        """Return one of its tiles with what is known of it by now."""
        group = self._deal.tile
        rows = _part(self._rows, group.rows, tile.rows).lowest()
        columns = _part(self._columns, group.columns, tile.columns).lowest() if tile.rows != tile.columns else rows[:0]
        return Deal(tile, rows, columns, self._deal.side_rows)

    def take(self, tile: TileBlock, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take in what a tile's task found."""
        group = self._deal.tile
        join(_part(self._rows, group.rows, tile.rows).keys, arrays["counts"], arrays["keys"])
        if "column_counts" in arrays:
            columns = _part(self._columns, group.columns, tile.columns).keys
            join(columns, arrays["column_counts"], arrays["column_keys"])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what ``topk_tile`` would have found of the whole group."""
        return found_arrays(self._rows, self._columns)


def _nobody(floors: NDArray[np.float32], k: int) -> Best:
    return Best(np.full((len(floors), k), NOBODY, dtype=np.uint64), floors)


def _part(best: Best, block: RowBlock, wanted: RowBlock) -> Best:
    own = slice(wanted.start - block.start, wanted.stop - block.start)
    return Best(best.keys[own], best.floors[own])


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """How the parts of tiles are merged on the instances."""

    k: int
    """How many neighbors."""
    source: Source
    """Who knows the name of an instance."""
    tile_rows: int
    """Rows, and columns, of a tile."""
    blocks: list[TileBlock]
    """The groups."""
    at_once: int
    """How many are merged at a time."""
    in_flight: int
    """Most unfinished tiles of each."""

    def task(self, tile_task: Callable[[Deal], Part]) -> Callable[[Deal], Part]:
        """Return what is called for each group; what is called for each tile is shipped once."""
        return partial(_merge, self.k, self.source, self.tile_rows, self.in_flight, ray.put(tile_task))


def groups_of(work: Work, k: int, tiles: list[TileBlock], record: BlockRecord[Any]) -> Groups | None:
    """Return the groups in which these tiles of the triangle are merged on the instances; None: the head merges all.

    Not where GPUs compute, which are few, nor for sparse rows, whose cost is not known before.
    """
    if work.queries is not None or work.context.on_gpus or work.context.sparse:
        return None
    size, slots, there = tiles[0].rows.rows, task_slots(), instances()
    merged = work.merged_tiles or sizes.merged_tiles(work.workload, work.matrix, size, slots, there)
    merged = sizes.kept_merged_tiles(record, merged)
    if merged == 1:
        return None
    blocks = list(tiling.triangle(work.matrix.rows, size * merged))
    at_once = min(len(blocks), sizes.mergers(slots, there))
    text = f"the parts of {len(tiles)} tiles are merged on the instances, in {len(blocks)} groups, {at_once} at a time"
    remark(text)
    work.notes.append(text)
    return Groups(
        k=k,
        source=work.context.source,
        tile_rows=size,
        blocks=blocks,
        at_once=at_once,
        in_flight=math.ceil(2 * slots / at_once),
    )


def _merge(k: int, source: Source, tile_rows: int, in_flight: int, task: Any, deal: Deal) -> Part:
    group = Group(k, deal)
    peaks: dict[str, int] = {}
    engines: set[str] = set()
    seconds = 0.0
    tiles = map(group.deal, tiling.cut(deal.tile, tile_rows))
    for dealt, part in map_blocks(task, tiles, in_flight=in_flight):
        group.take(dealt.tile, part.arrays)
        engines.update(part.engines)
        seconds += part.seconds
        peaks |= {host: max(peak, peaks.get(host, 0)) for host, peak in part.peaks.items()}
    arrays, here = group.arrays(), source.here().host
    # It may be a head that computes no tile, which is not among those that did.
    if here in peaks:
        peaks[here] = max(peaks[here], peak_memory_bytes())
    return Part(arrays=arrays, peaks=peaks, seconds=seconds, engines=tuple(sorted(engines)))

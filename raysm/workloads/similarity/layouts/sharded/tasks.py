"""What one task does with a meeting: what is done with a tile of a replicated matrix, and rows named by their numbers.

What flows in are the rows of a visitor, what flows out are arrays in which rows have their numbers in the matrix:
whoever gathers them need not know where a row lies.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import Meeting
from raysm.workloads.similarity.layouts.sharded.resident_rows import ShardContext, welcome
from raysm.workloads.similarity.layouts.sharded.schedule import Parcel
from raysm.workloads.similarity.modes import full, threshold, topk
from raysm.workloads.similarity.reading.matrix import Matrix
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import bench_of
from raysm.workloads.similarity.tasks.parts import Part, measured

__all__ = ["compare", "full_arrays", "in_line", "threshold_arrays", "topk_arrays"]

INDEX = np.uint64(0xFFFFFFFF)
"""The bits of a key that hold the neighbor's number."""


def compare(
    function: Callable[[Any, Any], Mapping[str, NDArray[Any]]],
    context: Context,
    meeting: Meeting,
    rows: Matrix | None = None,
) -> Part:
    """Run ``function(context, meeting)`` with the visitor's rows at hand, and say what it took."""
    assert isinstance(context, ShardContext)
    visitor = meeting.visitor
    here = welcome(context, visitor, rows)
    near = here.own if visitor is None else in_line(context, visitor)
    # Sides of the visitor before this one would keep its rows in the object store.
    bench_of(context).keep(lambda cut: _within(cut, here.own) or _within(cut, near))
    return measured(function, context, meeting)


def _within(cut: RowBlock, block: RowBlock) -> bool:
    return block.start <= cut.start and cut.stop <= block.stop


def in_line(context: ShardContext, parcel: Parcel) -> RowBlock:
    """Return where a parcel's rows are in line."""
    start = context.starts[parcel.host]
    return RowBlock(start + parcel.start, start + parcel.stop)


def _tile(context: ShardContext, meeting: Meeting) -> TileBlock:
    rows, columns = in_line(context, meeting.left), in_line(context, meeting.right)
    if meeting.piece is None:
        return TileBlock(rows, columns)
    above, beside = meeting.piece.rows, meeting.piece.columns
    return TileBlock(
        RowBlock(rows.start + above.start, rows.start + above.stop),
        RowBlock(columns.start + beside.start, columns.start + beside.stop),
    )


def topk_arrays(k: int, context: ShardContext, meeting: Meeting) -> dict[str, NDArray[Any]]:
    """Return the keys of ``topk_tile``."""
    tile = _tile(context, meeting)
    arrays = topk.topk_tile(context, k, topk.Deal(tile, *meeting.told))
    arrays["keys"] = _numbered(arrays["keys"], meeting.right, tile.columns.start)
    if "column_keys" in arrays:
        arrays["column_keys"] = _numbered(arrays["column_keys"], meeting.left, tile.rows.start)
    return arrays


def _numbered(keys: NDArray[np.uint64], parcel: Parcel, start: int) -> NDArray[np.uint64]:
    """Return keys whose indices are numbers in the matrix; a parcel's rows have the same order there."""
    numbers = parcel.numbers().astype(np.uint64)
    return (keys & ~INDEX) | numbers[(keys & INDEX).astype(np.int64) - start]


def threshold_arrays(least: np.float32, context: ShardContext, meeting: Meeting) -> dict[str, NDArray[Any]]:
    """Return ``rows[n] < neighbors[n]`` and ``similarities[n]``, sorted by row and neighbor; or ``crowded`` alone."""
    tile = _tile(context, meeting)
    arrays = threshold.threshold_tile(context, least, tile)
    if "crowded" in arrays:
        return arrays
    left, right = in_line(context, meeting.left), in_line(context, meeting.right)
    places = np.repeat(np.arange(tile.rows.start, tile.rows.stop), np.diff(arrays["offsets"])) - left.start
    first = meeting.left.numbers()[places]
    second = meeting.right.numbers()[arrays["neighbors"].astype(np.int64) - right.start]
    rows, neighbors = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((neighbors, rows))
    return {
        "rows": rows[order].astype(np.uint32),
        "neighbors": neighbors[order].astype(np.uint32),
        "similarities": arrays["similarities"][order],
    }


def full_arrays(dtype: Any, context: ShardContext, meeting: Meeting) -> dict[str, NDArray[Any]]:
    """Return ``scores[left, right]``."""
    return {"scores": full.full_tile(context, dtype, _tile(context, meeting))}

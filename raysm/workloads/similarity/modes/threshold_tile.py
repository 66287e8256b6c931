"""What one task does for a threshold: the pairs of one tile that are similar enough.

How many those are nobody knows before. A tile that holds more than a task may hand back is given up as soon as that is
seen, and dispatched again in ``pieces`` that cannot.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.engines import Pairs
from raysm.workloads.similarity.sizing.footprint import PART_BYTES
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.engine_cache import engine_cache_of

__all__ = ["MOST_PAIRS", "again", "pieces", "threshold_tile"]

MOST_PAIRS = PART_BYTES // 8
"""Pairs of one part: a neighbor and a score are 8 bytes."""

PANEL_ROWS = 2048
"""Rows, and columns, that the engine is asked about at once: at most ``MOST_PAIRS`` of them can be pairs."""


def threshold_tile(context: Context, threshold: np.float32, tile: TileBlock) -> dict[str, NDArray[Any]]:
    """Return the tile's pairs with a score of at least ``threshold``, those row < neighbor of one matrix.

    As ``offsets[rows + 1]``, ``neighbors[n]``, ``similarities[n]`` (see ``Pairs``); as ``overflowed`` alone where there
    are more than ``MOST_PAIRS``, of a tile that can be cut into ``pieces``.
    """
    cache = engine_cache_of(context)
    # A piece of one column may still hold more: given up again, it would come back the same for ever.
    can_be_cut = tile.rows.rows * tile.columns.rows > MOST_PAIRS and tile.columns.rows > 1
    # Held here: every line needs all of them, and the cache lets go of the oldest where they are large.
    right = [cache.operand(panel) for panel in _panels(tile.columns)]
    lines: list[Pairs] = []
    total = 0
    for panel in _panels(tile.rows):
        left = cache.operand(panel, queries=True)
        line = []
        for beside in right:
            if context.self_join and panel.start >= beside.tile.start + len(beside) - 1:
                continue  # below the diagonal there is no row < neighbor
            line.append(cache.engine.pairs(left, beside, threshold, same=context.self_join))
            total += len(line[-1].neighbors)
            if can_be_cut and total > MOST_PAIRS:
                return {"overflowed": np.array([total])}
        lines.append(_beside(line, panel.rows))
    ends = np.cumsum([0, *(len(pairs.neighbors) for pairs in lines)])
    offsets = [pairs.offsets[1:] + end for pairs, end in zip(lines, ends.tolist(), strict=False)]
    return {
        "offsets": np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
        "neighbors": np.concatenate([pairs.neighbors for pairs in lines]),
        "similarities": np.concatenate([pairs.similarities for pairs in lines]),
    }


def again(tile: TileBlock, arrays: Mapping[str, NDArray[Any]]) -> list[TileBlock]:
    """Return the pieces of a tile that was given up, in rows counted from its first; none of one that was not."""
    if "overflowed" not in arrays:
        return []
    return list(pieces(TileBlock(RowBlock(0, tile.rows.rows), RowBlock(0, tile.columns.rows))))


def pieces(tile: TileBlock) -> Iterator[TileBlock]:
    """Cut an overflowed tile, by its columns, into tiles that have at most ``MOST_PAIRS`` entries, or one column."""
    step = max(1, MOST_PAIRS // tile.rows.rows)
    for panel in _panels(tile.columns, step):
        yield TileBlock(tile.rows, panel)


def _panels(block: RowBlock, step: int = PANEL_ROWS) -> Iterator[RowBlock]:
    for start in range(block.start, block.stop, step):
        yield RowBlock(start, min(start + step, block.stop))


def _beside(line: list[Pairs], rows: int) -> Pairs:
    """Join the pairs of the same rows with columns that rise from one to the next."""
    if len(line) == 1:
        return line[0]
    if not line:
        return Pairs(
            offsets=np.zeros(rows + 1, dtype=np.int64),
            neighbors=np.empty(0, dtype=np.uint32),
            similarities=np.empty(0, dtype=np.float32),
        )
    row = np.concatenate([np.repeat(np.arange(rows), np.diff(pairs.offsets)) for pairs in line])
    # Stable: each row's neighbors stay in order.
    order = np.argsort(row, kind="stable")
    return Pairs(
        offsets=sum((pairs.offsets for pairs in line[1:]), start=line[0].offsets),
        neighbors=np.concatenate([pairs.neighbors for pairs in line])[order],
        similarities=np.concatenate([pairs.similarities for pairs in line])[order],
    )

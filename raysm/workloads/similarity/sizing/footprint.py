"""What a task takes, by what computes it: a core with dense rows, a core with sparse ones, or a GPU.

**Memory of a task** of n rows and m columns of a tile, of D elements each, beside the interpreter and its libraries:

    the mapped rows that it reads                                (n + m) D itemsize, and only while there is room
  + the operands of this tile, or of the latest ones             max(both, KEPT_BYTES)
      of which one takes, for n rows, at most                    n D 8 + n D itemsize (if the rows cannot be mapped)
  + the best of its rows and columns, and what is handed back    (n + m) (3 * 8 k + 8)
  + what the engine takes for products                           ENGINE_BYTES, and nothing if it is compiled
    instead, where it multiplies float32 of tight clusters       (n + m) D 8, which is about as much at most

An operand is at most ``OPERAND_BYTES``, which bounds n and m, and a result at most ``PART_BYTES``, whatever N is. Where
many tasks run at once, one of top-k does several tiles: its result alone bounds n and m then, its operands are as large
as before, and as many are kept as fit into ``KEPT_BYTES``. Top-k holds no pair that is not among the best so far; a
threshold holds at most twice ``PART_BYTES`` of pairs. Where a GPU compares, an operand is the mapped rows alone, at
most ``GPU_OPERAND_BYTES``; ``engines/cuda`` says what the GPU holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.workloads.similarity.reading.matrix import Described

__all__ = ["DENSE", "GPU", "PART_BYTES", "SPARSE", "Footprint"]

OPERAND_BYTES = 64 << 20
"""Largest operand of a tile, with the copy of its rows that a matrix that cannot be mapped needs."""

GPU_OPERAND_BYTES = 1 << 30
"""Largest operand that a GPU compares: its rows, mapped on the host, which travel to the GPU in panels."""

PART_BYTES = 32 << 20
"""Largest result of one task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """One way to compute, as far as the size of tiles follows from it."""

    max_rows: Callable[[Described], int]
    """Returns the most rows of one operand."""
    least_rows: int
    """Smaller blocks are not chosen: what a task costs by itself would show."""
    open_ended_rows: int | None = None
    """Most rows of a tile whose result nobody knows the size of before; None: as many as of others."""
    foreseeable: bool = False
    """What a tile costs follows from its size, so that parts can be joined where that is cheaper."""
    task: Mapping[str, Any] = field(default_factory=dict)
    """What ``map_blocks`` is told of each task."""


def _dense_rows(matrix: Described) -> int:
    # The engines of the CPU keep up to 8 bytes of each element beside the rows.
    return max(1, OPERAND_BYTES // (matrix.columns * (8 + matrix.dtype.itemsize)))


def _sparse_rows(matrix: Described) -> int:
    # 36 bytes of each element: it, its column, its share of the norm, and its entry in the list of its column.
    return max(1, int(OPERAND_BYTES / (36 * matrix.elements / matrix.rows + 40)))


def _gpu_rows(matrix: Described) -> int:
    return max(1, GPU_OPERAND_BYTES // (matrix.columns * matrix.dtype.itemsize))


DENSE = Footprint(max_rows=_dense_rows, least_rows=256, foreseeable=True)
"""A core that compares dense rows."""

SPARSE = Footprint(max_rows=_sparse_rows, least_rows=256)
"""A core that compares rows by their elements: what two rows cost is what they share."""

GPU = Footprint(
    max_rows=_gpu_rows,
    # It is that much faster than a core.
    least_rows=1 << 13,
    # Of a larger one, more tiles would be given up as overflowed.
    open_ended_rows=1 << 14,
    task={"num_gpus": 1, "lasting": True},
)
"""A GPU, with one process that keeps its memory from tile to tile. It is few, and fast: parts are never joined."""

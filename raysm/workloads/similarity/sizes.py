"""How large the blocks are, which a restarted job must not decide anew, and how much room their record needs.

The result does not depend on the blocks, but a finished block is of use only to a run that cuts the rows alike. The
size follows the cluster's CPUs where the request gives none, so the first run's choice is kept beside its blocks.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from raysm.contract.store import put
from raysm.request.workload import Similarity
from raysm.workloads.blocks import task_slots
from raysm.workloads.gather import check_room, free_bytes
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.context import tile_rows
from raysm.workloads.similarity.matrix import Matrix

__all__ = ["check_result_room", "side", "top_k_rows"]

PART_BYTES = 32 << 20
"""Largest result of one task."""

TILE_SIDE = 2048
"""Rows and columns of a tile in the modes that hand back tiles: at most 8 bytes for each of its entries travel."""

LEAST_ROWS = 256
"""Smaller blocks are not chosen: what a task costs by itself would show."""

BLOCK_ROWS = "block-rows"
"""Name of the file, in the record's folder, with the size that was chosen."""


def top_k_rows(
    workload: Similarity, k: int, matrix: Matrix, record: BlockRecord[Any], slots: Callable[[], int] = task_slots
) -> int:
    """Return how many rows one block of the k nearest has, on a cluster that runs ``slots()`` tasks at once."""
    if workload.block_rows:
        return workload.block_rows
    most = min(tile_rows(matrix.columns), max(1, PART_BYTES // (8 * k)))
    share = math.ceil(matrix.rows / (4 * slots()))
    return _kept(record, min(most, max(share, LEAST_ROWS)), most)


def side(workload: Similarity, matrix: Matrix, record: BlockRecord[Any], slots: Callable[[], int] = task_slots) -> int:
    """Return how many rows, and columns, one tile has, on a cluster that runs ``slots()`` tasks at once."""
    most = tile_rows(matrix.columns, TILE_SIDE)
    if workload.block_rows:
        return min(workload.block_rows, most)
    share = math.ceil(matrix.rows / math.ceil(math.sqrt(4 * slots())))
    return _kept(record, min(most, max(share, LEAST_ROWS)), most)


def _kept(record: BlockRecord[Any], chosen: int, most: int) -> int:
    """Return the size that an earlier run of the job chose, or keep ``chosen`` for the next."""
    path = record.folder / BLOCK_ROWS
    with suppress(OSError, ValueError):
        found = int(path.read_text(encoding="ascii"))
        if 1 <= found <= most:
            return found
    put(path, f"{chosen}\n")
    return chosen


def check_result_room(
    workload: Similarity, matrix: Matrix, result: Path, records: Path, free: Callable[[Path], int] = free_bytes
) -> None:
    """Check that the head's disks have room for the result, and for the record of its blocks.

    What lies in ``records`` already counts as free: finished blocks of this request are not written again, those of
    other requests are removed before anything is written.

    Raises:
        NoRoom: A disk has too little room.
    """
    rows, k = matrix.rows, workload.top_k
    there = occupied_bytes(records)
    if k is not None:
        ids = 16 * rows if matrix.id_files else 0
        check_room([(records, rows * k * 8 - there), (result, rows * (12 * k + 8) + ids)], free)
    elif workload.full:
        size = rows * rows * np.dtype(workload.dtype).itemsize
        needs = [(records, size - there)]
        check_room(needs if _same_disk(result, records) else [*needs, (result, size)], free)


def _same_disk(first: Path, second: Path) -> bool:
    for folder in (first, second):
        folder.mkdir(parents=True, exist_ok=True)
    return first.stat().st_dev == second.stat().st_dev

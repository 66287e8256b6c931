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
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import task_slots
from raysm.workloads.gather import check_room, free_bytes
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.reading.matrix import Described
from raysm.workloads.similarity.tasks import engine_cache

__all__ = [
    "block_rows",
    "check_result_room",
    "joined_rows",
    "kept_merged_tiles",
    "merged_tiles",
    "mergers",
    "most_rows",
    "rectangle_rows",
    "strip_rows",
]

TILE_SIDE = 2048
"""Most rows and columns of a tile of the full matrix of shards: 4 bytes for each of its entries travel."""

PRODUCT_S = 5.5e-12
"""What one element of a pair costs a slot, about."""

PART_S = 2e-3
"""What a part costs whoever takes it in, however small.

Measured on two cores with AMX, with tasks that return parts at once: 0.5 to 0.7 ms of the thread that asks Ray, with 32
parts unfinished, and 1.1 to 1.3 ms with 1024; and 0.6 ms for the record."""

ROW_S, KEY_S = 0.15e-6, 0.02e-6
"""What a row of a part costs besides, and each of its k keys.

Measured there, merged and recorded: with k = 10, a row costs 0.13 us where 0.2 of its keys reach the floors, 0.25 us
where 2 do, 0.57 us where all do, which is so until the first floors are known; with k = 100, 1.1, 1.9 and 3.8 us. A
third to two thirds of it is the record, which is digested and synchronised to the disk."""

MERGING_S = 2.0
"""What it takes to begin to merge on the instances: the processes that do it are started, and import NumPy.

Measured on two cores, which the tasks had at the same time: 1.2 s."""

MOST_MERGED = 32
"""Most tiles on a side of a group that is merged on an instance: a lost instance takes what was merged there along."""

HEAD_SHARE = 0.5
"""Of the tasks' time, what the head may take for their parts."""

LEAST_ROWS = 256
"""Smaller blocks are not chosen: what a task costs by itself would show."""

GPU_LEAST_ROWS = 1 << 13
"""The same for GPUs, which are that much faster."""

GPU_THRESHOLD_ROWS = 1 << 14
"""Most rows of a GPU's tile for a threshold: of a larger one, more tiles would be given up as crowded."""

BLOCK_ROWS, MERGED_TILES = "block-rows", "merged-tiles"
"""Names of the files, in the record's folder, with the sizes that were chosen."""


def block_rows(
    workload: Similarity,
    matrix: Described,
    record: BlockRecord[Any],
    slots: Callable[..., int] = task_slots,
    *,
    sparse: bool = False,
    gpus: bool = False,
) -> int:
    """Return how many rows, and columns, one tile of the triangle has, for tasks ``slots()`` of which run at once."""
    most = most_rows(workload, matrix, sparse=sparse, gpus=gpus)
    if workload.block_rows:
        return min(workload.block_rows, most)
    at_once = _at_once(slots, gpus)
    joined = most if gpus or sparse else joined_rows(workload, most, matrix.columns, at_once)
    blocks = tiling.blocks_for(at_once, matrix.rows, GPU_LEAST_ROWS if gpus else LEAST_ROWS, joined)
    # A run on fewer cores goes on with the blocks of one on many.
    return _kept(record, (math.ceil(matrix.rows / blocks),), max(most, _most_in_part(workload)))[0]


def joined_rows(workload: Similarity, most: int, columns: int, slots: int) -> int:
    """Return the most rows of a block so that the head takes in the parts of ``slots`` slots in HEAD_SHARE of the time.

    A task then does several tiles of ``most`` rows, and hands back one part: parts are merged first where they are
    made. It takes rows**2 * columns * PRODUCT_S; the head PART_S, and ``_row_s`` for each row and column. With 64
    instances of 8 cores, 10**7 rows of 768 columns are 940,000 tiles of 7281 rows: 410 s of the tasks, and 6700 s of
    the head. In blocks of 110,000 rows, eight for each slot, it merges 4200 parts, in 330 s. Few rows are cut for all
    slots to be busy, and no less: ``merged_tiles``.
    """
    if workload.top_k is None:
        return most
    product_s, row_s = HEAD_SHARE * columns * PRODUCT_S / slots, _row_s(workload)
    enough = (row_s + math.sqrt(row_s**2 + product_s * PART_S)) / product_s
    return max(most, min(math.ceil(enough), _most_in_part(workload)))


def merged_tiles(workload: Similarity, matrix: Described, block_rows: int, slots: int, instances: int) -> int:
    """Return of how many tiles, on a side, the parts are merged on an instance; 1: the head takes in each tile's part.

    That one is taken with which the seconds are fewest, by the costs above, and of equals the smallest:

        tiles on the head          max(tasks, head)
        groups on the instances    MERGING_S + max(tasks, merging, head) + the head's of the groups that end last

    The tasks take half of rows**2 * columns * PRODUCT_S / slots; whoever merges, PART_S for each part, and ``_row_s``
    for each of its rows and columns. With 64 instances of 8 cores, 10**6 rows of 768 columns are 9180 tiles: 4 s of the
    tasks, and 66 s of the head. In groups of 27 x 27 tiles they are 15 parts, 2 s of the head, and all takes 9 s. With
    8 such instances the tasks take 33 s and the head 24 s, beside them: nothing is merged before. Nor on one instance,
    whose cores are those of the head.
    """
    if workload.top_k is None or instances < 2:
        return 1
    row_s, blocks = _row_s(workload), math.ceil(matrix.rows / block_rows)
    tasks = matrix.rows**2 / 2 * matrix.columns * PRODUCT_S / slots

    def taking_in(on_a_side: int) -> float:
        return PART_S + 2 * on_a_side * block_rows * row_s

    def seconds(on_a_side: int) -> float:
        beside = math.ceil(blocks / on_a_side)
        groups = beside * (beside + 1) // 2
        head = groups * taking_in(on_a_side)
        if on_a_side == 1:
            return max(tasks, head)
        at_once = min(groups, mergers(slots, instances))
        merging = blocks * (blocks + 1) / 2 * taking_in(1) / at_once
        return MERGING_S + max(tasks, merging, head) + head * at_once / groups

    # So many smaller groups would not keep all slots busy: each has two tiles for each of its slots, and two to come.
    least = max(2, math.ceil(math.sqrt(4 * slots / mergers(slots, instances))))
    most = min(MOST_MERGED, blocks, _most_in_part(workload) // block_rows)
    choices: list[int] = [1, *range(least, most + 1)]
    return min(choices, key=seconds)


def mergers(slots: int, instances: int) -> int:
    """Return how many groups are merged at once: one on an instance, of large ones one for each eight slots."""
    return max(instances, slots // 8)


def kept_merged_tiles(record: BlockRecord[Any], chosen: int) -> int:
    """Return the number of tiles that an earlier run of the job merged, or keep ``chosen`` for the next."""
    return _kept(record, (chosen,), MOST_MERGED, MERGED_TILES)[0]


def _row_s(workload: Similarity) -> float:
    return ROW_S + KEY_S * (workload.top_k or 0)


def _most_in_part(workload: Similarity) -> int:
    """Return of how many rows, and as many columns, a part of top-k holds the keys; 0 of other parts."""
    return 0 if workload.top_k is None else max(1, engine_cache.PART_BYTES // (16 * workload.top_k))


def rectangle_rows(
    workload: Similarity,
    queries: Described,
    matrix: Described,
    record: BlockRecord[Any],
    slots: Callable[..., int] = task_slots,
    *,
    sparse: bool = False,
    gpus: bool = False,
) -> tuple[int, int]:
    """Return how many rows of the queries, and how many columns of the matrix, one tile has.

    Queries are cut first, which leaves nothing to merge; where they are few, the columns keep all slots busy.
    """
    most = min(most_rows(workload, one, sparse=sparse, gpus=gpus) for one in (queries, matrix))
    least = GPU_LEAST_ROWS if gpus else LEAST_ROWS
    if workload.block_rows:
        return min(workload.block_rows, most), min(workload.block_rows, most)
    tiles = tiling.TILES_A_SLOT * _at_once(slots, gpus)
    rows = min(most, max(math.ceil(queries.rows / tiles), least))
    beside = math.ceil(tiles / math.ceil(queries.rows / rows))
    columns = min(most, max(math.ceil(matrix.rows / beside), least))
    chosen = _kept(record, (rows, columns), most)
    return chosen[0], chosen[1]


def strip_rows(
    workload: Similarity,
    seekers: Described,
    matrix: Described,
    record: BlockRecord[Any],
    slots: Callable[..., int] = task_slots,
    *,
    sparse: bool = False,
) -> int:
    """Return how many rows one strip of the full matrix has, all of whose columns are one task's."""
    row_bytes = matrix.rows * np.dtype(workload.dtype).itemsize
    most = min(most_rows(workload, seekers, sparse=sparse), max(1, engine_cache.PART_BYTES // row_bytes))
    if workload.block_rows:
        return min(workload.block_rows, most)
    wanted = math.ceil(seekers.rows / (tiling.TILES_A_SLOT * slots()))
    return _kept(record, (min(most, max(wanted, LEAST_ROWS)),), most)[0]


def _at_once(slots: Callable[..., int], gpus: bool) -> int:
    return slots(num_gpus=1) if gpus else slots()


def most_rows(workload: Similarity, matrix: Described, *, sparse: bool = False, gpus: bool = False) -> int:
    """Return the most rows that one side of a tile may have."""
    if sparse:
        most = engine_cache.most_sparse_rows(matrix.elements / matrix.rows)
    else:
        most = engine_cache.most_rows(matrix.columns, matrix.dtype.itemsize, gpu=gpus)
    if workload.full:
        return min(TILE_SIDE, most)
    if gpus and workload.threshold is not None:
        return min(GPU_THRESHOLD_ROWS, most)
    # A task hands back the keys of its rows and of its columns.
    return most if workload.top_k is None else min(most, _most_in_part(workload))


def _kept(record: BlockRecord[Any], chosen: tuple[int, ...], most: int, name: str = BLOCK_ROWS) -> tuple[int, ...]:
    """Return the sizes that an earlier run of the job chose, or keep ``chosen`` for the next."""
    path = record.folder / name
    with suppress(OSError, ValueError):
        found = tuple(int(text) for text in path.read_text(encoding="ascii").split())
        if len(found) == len(chosen) and all(1 <= size <= most for size in found):
            return found
    put(path, " ".join(map(str, chosen)) + "\n")
    return chosen


def check_result_room(
    workload: Similarity,
    seekers: Described,
    matrix: Described,
    places: tuple[Path, Path, Path],
    free: Callable[[Path], int] = free_bytes,
) -> None:
    """Check that the head's disks have room for the result, for the record of its blocks, and for what is merged.

    What lies among the records already counts as free: finished blocks of this request are not written again, those of
    other requests are removed before anything is written. Of top-k, the record is at least the k keys of each row once,
    and about ``1 + log(blocks)`` times that; a disk that is full for it is said when it is.

    Args:
        workload: What is asked for.
        seekers: The matrix whose rows look for neighbors.
        matrix: The matrix that they look into.
        places: The folders of the result, of the records, and of what is merged.
        free: What is free on the disk of a folder.

    Raises:
        NoRoom: A disk has too little room.
    """
    rows, k = seekers.rows, workload.top_k
    result, records, scratch = places
    there = occupied_bytes(records)
    if k is not None:
        ids = math.ceil(seekers.id_bytes + rows * k * matrix.id_bytes / matrix.rows)
        keys = rows * k * 8
        # Of each neighbor its number, its score, and a bit that says where a list begins; of each row its number.
        made = rows * (12 * k + k // 8 + 9) + ids
        check_room([(records, keys - there), (scratch, keys), (result, made)], free)
    elif workload.full:
        size = rows * matrix.rows * np.dtype(workload.dtype).itemsize
        needs = [(records, size - there)]
        check_room(needs if _same_disk(result, records) else [*needs, (result, size)], free)


def _same_disk(first: Path, second: Path) -> bool:
    for folder in (first, second):
        folder.mkdir(parents=True, exist_ok=True)
    return first.stat().st_dev == second.stat().st_dev

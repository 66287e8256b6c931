"""How long a similarity will take: a cost model, fitted on a few tiles of the matrix itself before anything is sent.

With N rows in B blocks of n rows, on ``slots`` cores, and the costs measured on blocks of m rows:

    prepare    = N / m * prepare / slots
    similarity = when the last slot ends, if each takes the next tile of the triangle as soon as it is free; a tile
                 costs TASK_S + (diagonal or tile) (n / m)**2 + operand (n / m) for each operand that its process does
                 not keep
    gathering  = rows written / their rate, for top-k; for the full matrix, bytes / the disk's rate - similarity
    overhead   = START_S, from the formed cluster to the first task and from the last file to the end

The whole square of the full matrix is computed, and leaves through the head:

    similarity = ( (N / m)**2 tile + bytes BYTE_S + tasks TASK_S ) / slots

Otherwise the triangle is played through. The head's merging runs beside the tasks; where it is the slower one (many
cores), it counts instead: of the parts of tiles, or of groups of them where the instances merge those
(``partial_merge``). Where instances own ranges of rows, what counts is the head's dispatching, PART_S a tile, or a
batch of those that an instance hands out itself, or the owners' merging, each of its share; and each writes its own
part of the result. Of rows that are shared out, a tile is two chunks, and what comes to an instance counts where the
network is the slower one (``scaling.alone_s``). A tile's cost falls a little as lower bounds rise, and rises a little
where all cores share their caches; the measurement, on all cores at once, has the second.
"""

import heapq
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from raysm.bootstrap import environment
from raysm.errors import RaysmError
from raysm.request.codec import from_json, to_json
from raysm.request.similarity import Similarity
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.estimating.probe import LEAST_S, Costs, Question
from raysm.workloads.similarity.modes import mode_of
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.matrix import Matrix, open_matrix
from raysm.workloads.similarity.sizing.footprint import DENSE, PART_BYTES, SPARSE
from raysm.workloads.similarity.sizing.scaling import (
    GROUPS,
    HEAD,
    NETWORK_BYTES_S,
    PART_S,
    RANGES,
    alone_s,
)
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.sizing.spread import Spread
from raysm.workloads.similarity.tasks import preparing
from raysm.workloads.similarity.tasks.engine_cache import KEPT_BYTES

__all__ = ["Estimate", "estimate", "predict", "sizing_of"]

MOST_PROBE_ROWS = 4096
"""Rows of a block that is measured."""

START_S = 0.85
"""From the formed cluster to the first task, and from the last file to the end."""

TASK_S = 0.003
"""What a task costs beside its work."""

BYTE_S = 2e-9
"""What a byte of the full matrix costs beside its computing: to be handed over, written and digested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What is expected, in seconds after the cluster is formed."""

    engine: str
    """What was measured with."""
    slots: int
    """Cores that are counted on."""
    tasks: int
    """Pieces of the work: no more cores than these compute."""
    phases_s: dict[str, float]
    """``prepare``, ``similarity``, ``gathering``: as the manifest will say them."""
    way: str = HEAD
    """Who merges: ``scaling.HEAD``, ``GROUPS`` or ``RANGES``."""
    parts: int = 1
    """Files that the result will be, beside the manifest."""
    chunk_rows: int = 0
    """Rows of what travels at once; 0 where every instance has all rows."""
    coming_bytes: float = 0.0
    """Of rows that come to each instance from the others."""

    @property
    def result(self) -> str:
        """What it will be, and who merges it, for people."""
        merged_by = {
            HEAD: "one file, merged by the head",
            GROUPS: "one file; the instances merge tiles in groups, and the head merges those",
            RANGES: f"{self.parts} files, each of a range of rows that an instance owns, merges and writes",
        }
        return merged_by[self.way]

    @property
    def travelling(self) -> str:
        """What travels, for people; empty where nothing does."""
        if not self.coming_bytes:
            return ""
        return (
            f"{self.tasks} pairs of chunks of {self.chunk_rows} rows at most; {self.coming_bytes / 1e9:.2f} GB of rows "
            f"come to each instance, in {self.coming_bytes / NETWORK_BYTES_S:.1f} s at 10 Gbit/s"
        )

    @property
    def total_s(self) -> float:
        """From the formed cluster to the end of the job."""
        return sum(self.phases_s.values()) + START_S


def estimate(
    path: Path,
    workload: Similarity,
    slots: int,
    processes: int | None = None,
    instances: int = 1,
    *,
    shared_out: bool = False,
    least_s: float = LEAST_S,
) -> Estimate:
    """Measure a few tiles of the matrix at ``path`` on this machine, and predict the whole on ``slots`` cores.

    Args:
        path: A file or folder, as a channel has it.
        workload: What is asked for.
        slots: Cores of all instances together; each is taken to be as fast as one of this machine.
        processes: Cores to measure on at once; None is all of this machine, at most ``slots``.
        instances: How many there are.
        shared_out: Each of them has a share of the rows, and not all.
        least_s: For how long each measurement is repeated at least.

    Raises:
        InvalidInput: The files are no matrix.
        RaysmError: The measurement failed; the message says how.
    """
    mode = mode_of(workload)
    with tempfile.TemporaryDirectory(prefix="raysm-estimate-") as scratch:
        matrix = open_matrix(path, Path(scratch), Selection.of(workload))
        sizing = sizing_of(workload, matrix, slots, instances, shared_out=shared_out)
        # Half of the matrix at most: a tile beside the diagonal needs two blocks.
        rows = max(1, min(MOST_PROBE_ROWS, matrix.rows // 2, sizing.chosen_triangle_rows()))
        question = Question(path=str(path), scratch=scratch, workload=workload, rows=rows, least_s=least_s)
        count = processes or min(slots, os.cpu_count() or 1)
        # On all cores at once, as a job has them.
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(_ask, [question] * count))
        seconds = ("prepare", "operand", "diagonal", "tile", "merge")
        costs = Costs(
            engine=answers[0].engine,
            operand_bytes=answers[0].operand_bytes,
            **{name: mean(getattr(one, name) for one in answers) for name in seconds},
        )
        gathering = mode.gathering_seconds(matrix, Path(scratch), sizing)
    return predict(workload, sizing, costs, rows, gathering)


def sizing_of(
    workload: Similarity, matrix: Matrix, slots: int, instances: int = 1, *, shared_out: bool = False
) -> Sizing:
    """Return how a job of so many cores would cut the matrix."""
    row_bytes = matrix.nbytes / matrix.rows
    return Sizing(
        limits=mode_of(workload).limits,
        footprint=SPARSE if preparing.compares_elements(matrix) else DENSE,
        queries=matrix,
        matrix=matrix,
        slots=slots,
        instances=instances,
        block_rows=workload.block_rows,
        ranges=Sizing.ranges_of(workload.parts),
        # Whatever the instances' object stores hold, which only they say: the smallest may have room for less.
        spread=Spread.even(matrix.rows, row_bytes, instances, slots) if shared_out else None,
    )


def predict(workload: Similarity, sizing: Sizing, costs: Costs, measured_rows: int, gathering_s: float) -> Estimate:
    """Return what the model says; see above."""
    rows, slots = sizing.matrix.rows, sizing.slots
    block_rows = min(rows, sizing.chosen_triangle_rows())
    blocks = math.ceil(rows / block_rows)
    # The last block is smaller; the model takes all as N / B rows.
    scale = rows / blocks / measured_rows
    ranges = sizing.chosen_ranges
    # Pairs of chunks are never merged in groups: each goes where one of the two lies.
    joined = 1 if ranges or sizing.spread else sizing.chosen_group_tiles(block_rows)
    batches = sizing.batch_count(ranges)
    merging = _merging_s(math.ceil(blocks / joined), ranges, costs.merge * scale * joined, batches)
    # Each writes its own files to its own disk.
    gathering_s /= sizing.writers
    # Of a threshold and of top-k, what is found is small beside the work.
    size = rows**2 * np.dtype(workload.dtype).itemsize if mode_of(workload).in_strips else 0
    if size and sizing.spread is None:
        tasks = math.ceil(size / PART_BYTES)
        computing = ((rows / measured_rows) ** 2 * costs.tile + tasks * TASK_S) / slots
    else:
        operands_kept = max(2, int(KEPT_BYTES / max(1, costs.operand_bytes * scale)))
        tasks = blocks * (blocks + 1) // 2
        computing = _last_slot_ends(blocks, slots, costs, scale, operands_kept)
    computing += size * BYTE_S / slots
    if size:
        # It is written beside the computing: what the disk has not taken by then remains.
        gathering_s = max(0.0, gathering_s - computing)
    travelling_s = 0.0
    if sizing.spread is not None:
        travelling_s = sizing.spread.coming_bytes / NETWORK_BYTES_S
        coming = sizing.spread.coming_chunks(block_rows)
        travelling_s += alone_s(coming, computing, travelling_s, sizing.instances)
    return Estimate(
        engine=costs.engine,
        slots=slots,
        tasks=tasks,
        phases_s={
            "prepare": rows / measured_rows * costs.prepare / slots,
            "similarity": max(computing, merging, travelling_s),
            "gathering": gathering_s,
        },
        way=RANGES if ranges else GROUPS if joined > 1 else HEAD,
        parts=ranges or 1,
        chunk_rows=block_rows if sizing.spread else 0,
        coming_bytes=sizing.spread.coming_bytes if sizing.spread else 0.0,
    )


def _merging_s(blocks: int, ranges: int, part_s: float, batches: int) -> float:
    """Return what the parts of the triangle of so many blocks take whoever takes longest for them.

    Where instances hand out their own, the head tells them of theirs in so many batches; else that is 0.
    """
    parts = blocks * (blocks + 1) // 2
    # An owner has its share of the parts' rows, beside what a part costs by itself.
    return max((batches or parts) * PART_S, parts * part_s / ranges) if ranges else parts * part_s


def _last_slot_ends(blocks: int, slots: int, costs: Costs, scale: float, operands_kept: int) -> float:
    """Return the seconds until all tiles are computed by slots that each keep so many operands."""
    free = [(0.0, slot) for slot in range(min(slots, blocks * (blocks + 1) // 2))]
    operands_of: list[dict[int, None]] = [{} for _ in free]
    operand, diagonal, tile = costs.operand * scale, costs.diagonal * scale**2, costs.tile * scale**2
    for cut in tiling.triangle(blocks, 1):
        at, slot = free[0]
        operands = operands_of[slot]
        # Not a set: a dict keeps the order, and names a block that is both only once.
        for block in {cut.rows.start: None, cut.columns.start: None}:
            if block in operands:
                del operands[block]
            else:
                at += operand
            operands[block] = None
        # As ``EngineCache`` does: what was used longest ago is the first to go.
        while len(operands) > operands_kept:
            del operands[next(iter(operands))]
        heapq.heapreplace(free, (at + TASK_S + (diagonal if cut.rows == cut.columns else tile), slot))
    return max(free)[0]


def _ask(question: Question) -> Costs:
    # -P: the folder in which somebody works may hold a random.py that is not meant.
    command = [sys.executable, "-P", "-m", "raysm.workloads.similarity.estimating.probe"]
    # As a task of one core has it.
    variables = environment.child_environment({"OMP_NUM_THREADS": "1"})
    text = json.dumps(to_json(question))
    # Begun afresh: a product's library reads the number of its threads as it is loaded.
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=variables, check=False)
    if done.returncode != 0:
        # Of a traceback the last line is the error itself.
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RaysmError(f"a few tiles of {Path(question.path).name} could not be measured: {last}")
    costs: Costs = from_json(Costs, json.loads(done.stdout), "costs")
    return costs

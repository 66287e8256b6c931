"""How long a similarity will take: a cost model, fitted on a few tiles of the matrix itself before anything is sent.

With N rows in B blocks of n rows, on ``slots`` cores, and the costs measured on blocks of m rows:

    prepare    = N / m * prepare / slots
    similarity = when the last slot ends, if each takes the next tile of the deal as soon as it is free; a tile costs
                 TASK_S + (diagonal or tile) (n / m)**2 + side (n / m) for each side that its process does not keep
    gathering  = rows written / their rate, for top-k; for the full matrix, bytes / the disk's rate - similarity
    overhead   = START_S, from the formed cluster to the first task and from the last file to the end

The whole square of the full matrix is computed, and leaves through the head:

    similarity = ( (N / m)**2 tile + bytes BYTE_S + tasks TASK_S ) / slots

Otherwise the deal is played through. The head's merging runs beside the tasks; where it is the slower one (many cores),
it counts instead: of the parts of tiles, or of groups of them where the instances merge those (``merging``). A tile's
cost falls a little as floors rise, and rises a little where all cores share their caches; the measurement, on all cores
at once, has the second.
"""

import heapq
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from raysm.bootstrap import environment
from raysm.errors import RaysmError
from raysm.request.codec import from_json, to_json
from raysm.request.similarity import Similarity
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.estimating.probe import Costs, Question
from raysm.workloads.similarity.reading.ids import gather
from raysm.workloads.similarity.reading.matrix import Matrix, open_matrix
from raysm.workloads.similarity.sizing import sizes
from raysm.workloads.similarity.tasks import engine_cache, preparing

__all__ = ["Estimate", "estimate", "predict"]

MOST_PROBE_ROWS = 4096
"""Rows of a block that is measured."""

START_S = 0.85
"""From the formed cluster to the first task, and from the last file to the end."""

TASK_S = 0.003
"""What a task costs beside its work."""

BYTE_S = 2e-9
"""What a byte of the full matrix costs beside its computing: to be handed over, written and digested."""

DISK_BYTES = 256 << 20
"""Written to learn the disk's rate."""


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

    @property
    def total_s(self) -> float:
        """From the formed cluster to the end of the job."""
        return sum(self.phases_s.values()) + START_S


def estimate(
    path: Path, workload: Similarity, slots: int, processes: int | None = None, instances: int = 1
) -> Estimate:
    """Measure a few tiles of the matrix at ``path`` on this machine, and predict the whole on ``slots`` cores.

    Args:
        path: A file or folder, as a channel has it.
        workload: What is asked for.
        slots: Cores of all instances together; each is taken to be as fast as one of this machine.
        processes: Cores to measure on at once; None is all of this machine, at most ``slots``.
        instances: How many there are.

    Raises:
        InvalidInput: The files are no matrix.
        RaysmError: The measurement failed; the message says how.
    """
    with tempfile.TemporaryDirectory(prefix="raysm-estimate-") as scratch:
        matrix = open_matrix(path, Path(scratch), workload.id_column)
        rows = max(1, min(MOST_PROBE_ROWS, matrix.rows // 2, _block_rows(workload, matrix, slots)))
        question = Question(path=str(path), scratch=scratch, workload=workload, rows=rows)
        count = processes or min(slots, os.cpu_count() or 1)
        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(_ask, [question] * count))
        costs = Costs(
            engine=found[0].engine,
            **{name: mean(getattr(one, name) for one in found) for name in ("prepare", "side", "diagonal")},
            **{name: mean(getattr(one, name) for one in found) for name in ("tile", "merge")},
            side_bytes=found[0].side_bytes,
        )
        gathering = _gathering_seconds(workload, matrix, Path(scratch))
    return predict(workload, matrix, slots, costs, rows, gathering, instances)


def predict(
    workload: Similarity,
    matrix: Matrix,
    slots: int,
    costs: Costs,
    measured_rows: int,
    gathering_s: float,
    instances: int = 1,
) -> Estimate:
    """Return what the model says; see above."""
    block_rows = _block_rows(workload, matrix, slots)
    blocks = math.ceil(matrix.rows / block_rows)
    # The last block is smaller; the model takes all as N / B rows.
    scale = matrix.rows / blocks / measured_rows
    joined = sizes.merged_tiles(workload, matrix, block_rows, slots, instances)
    parts = math.ceil(blocks / joined)
    merging = parts * (parts + 1) // 2 * costs.merge * scale * joined
    if workload.full:
        size = matrix.rows**2 * np.dtype(workload.dtype).itemsize
        strips = math.ceil(size / engine_cache.PART_BYTES)
        work = (matrix.rows / measured_rows) ** 2 * costs.tile + size * BYTE_S
        tasks, computing = strips, (work + strips * TASK_S) / slots
        # It is written beside the computing: what the disk has not taken by then remains.
        gathering_s = max(0.0, gathering_s - computing)
    else:
        kept = max(2, int(engine_cache.KEPT_BYTES / max(1, costs.side_bytes * scale)))
        tasks = blocks * (blocks + 1) // 2
        computing = _last_slot_ends(blocks, slots, costs, scale, kept)
    return Estimate(
        engine=costs.engine,
        slots=slots,
        tasks=tasks,
        phases_s={
            "prepare": matrix.rows / measured_rows * costs.prepare / slots,
            "similarity": max(computing, merging),
            "gathering": gathering_s,
        },
    )


def _last_slot_ends(blocks: int, slots: int, costs: Costs, scale: float, kept: int) -> float:
    """Return the seconds until all tiles are computed by slots that each keep so many sides."""
    free = [(0.0, slot) for slot in range(min(slots, blocks * (blocks + 1) // 2))]
    held: list[dict[int, None]] = [{} for _ in free]
    side, diagonal, tile = costs.side * scale, costs.diagonal * scale**2, costs.tile * scale**2
    for cut in tiling.triangle(blocks, 1):
        at, slot = free[0]
        sides = held[slot]
        for block in {cut.rows.start: None, cut.columns.start: None}:
            if block in sides:
                del sides[block]
            else:
                at += side
            sides[block] = None
        while len(sides) > kept:
            del sides[next(iter(sides))]
        heapq.heapreplace(free, (at + TASK_S + (diagonal if cut.rows == cut.columns else tile), slot))
    return max(free)[0]


def _block_rows(workload: Similarity, matrix: Matrix, slots: int) -> int:
    most = sizes.most_rows(workload, matrix, sparse=preparing.compares_elements(matrix))
    if workload.block_rows:
        return min(workload.block_rows, most, matrix.rows)
    joined = sizes.joined_rows(workload, most, matrix.columns, slots)
    blocks = tiling.blocks_for(slots, matrix.rows, sizes.LEAST_ROWS, joined)
    return math.ceil(matrix.rows / blocks)


def _ask(question: Question) -> Costs:
    command = [sys.executable, "-m", "raysm.workloads.similarity.estimating.probe"]
    # As a task of one core has it.
    variables = environment.child_environment({"OMP_NUM_THREADS": "1"})
    asked = json.dumps(to_json(question))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, env=variables, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RaysmError(f"a few tiles of {Path(question.path).name} could not be measured: {last}")
    found: Costs = from_json(Costs, json.loads(done.stdout), "costs")
    return found


def _gathering_seconds(workload: Similarity, matrix: Matrix, scratch: Path) -> float:
    """Measure what the last phase does, on a part of it."""
    if workload.top_k is not None:
        return _writing_seconds(min(workload.top_k, matrix.rows - 1), matrix, scratch)
    if workload.full:
        return matrix.rows**2 * np.dtype(workload.dtype).itemsize / _disk_rate(scratch)
    return 0.0


def _writing_seconds(k: int, matrix: Matrix, scratch: Path) -> float:
    rows = min(matrix.rows, max(1, (4 << 20) // k))
    rng = np.random.default_rng(0)
    keys = encode(
        np.sort(rng.random((rows, k), dtype=np.float32), axis=1)[:, ::-1].copy(),
        rng.integers(0, matrix.rows, (rows, k)),
    )
    ids = gather(matrix, matrix)
    begin = time.perf_counter()
    output.write_neighbors(scratch, lambda start, stop: keys[start:stop], k, rows, lambda done: None, ids)
    return (time.perf_counter() - begin) * matrix.rows / rows


def _disk_rate(folder: Path) -> float:
    """Return how many bytes a second the disk takes."""
    block = np.random.default_rng(0).bytes(8 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        begin = time.perf_counter()
        for _ in range(DISK_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return DISK_BYTES / (time.perf_counter() - begin)

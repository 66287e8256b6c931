"""Estimate the time of a similarity: rates that are measured on this machine, times the work.

``estimate`` starts one process for each core, as a job would: this module, run by ``python -m``.
Each measures how fast a core prepares rows and compares pairs of the matrix itself. With N rows on
S slots:

    prepare    = N / (rows a second) / S
    similarity = pairs / (pairs a second) / S; or the time to send rows or to write scores, if that
                 is longer
    gathering  = bytes of the result / DISK_BYTES_S / instances that write it
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.similarity.cluster.modes import choose_mode
from raysm.features.similarity.cluster.preparation import (
    compares_elements,
    make_operand,
    prepare_block,
)
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import Location, Matrix, Source, open_matrix
from raysm.features.similarity.cluster.tasks import (
    Context,
    RowShape,
    TileTask,
    get_engine_cache,
    run_preparation,
)
from raysm.features.similarity.cluster.tiling import DENSE, SPARSE, Sizing
from raysm.features.similarity.request import Similarity
from raysm.instance import environment
from raysm.instance.work.row_blocks import RowBlock, TileBlock

MAX_ROWS = 4096
MIN_S = 0.6
"""Seconds for which each measurement is repeated, so that all cores measure the same thing at the
same time."""

START_S = 0.85
"""Seconds from the formed cluster to the first task, and from the last file to the end, measured on
two cores."""

NETWORK_BYTES_S = 1.25e9
"""Network of one instance, each way: 10 Gbit/s, which the types from 4xlarge on have as their
baseline or above (https://docs.aws.amazon.com/ec2/latest/instancetypes/co.html)."""

DISK_BYTES_S = 250e6
"""Disk of one instance: gp2, all that SageMaker offers beside instances' own disks, takes no more
(https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """How fast one core is."""

    engine: str
    rows: float
    """Rows that it prepares in a second."""
    pairs: float
    """Pairs of rows that it compares in a second."""
    columns: int | None = None
    """Columns of these rows; None: those of the matrix that is estimated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    rates: Rates
    slots: int
    tasks: int
    phases_s: dict[str, float]
    """Seconds of ``prepare``, ``similarity`` and ``gathering``, the phases of the manifest."""
    parts: int = 1
    """Files of the result, beside the manifest."""
    coming_bytes: float = 0.0
    """Bytes of rows that come to each instance from the others."""

    @property
    def engine(self) -> str:
        return self.rates.engine

    @property
    def total_s(self) -> float:
        return sum(self.phases_s.values()) + START_S


def estimate(
    path: Path,
    workload: Similarity,
    slots: int,
    processes: int | None = None,
    instances: int = 1,
    *,
    shared_out: bool = False,
    min_s: float = MIN_S,
    rates: Rates | None = None,
) -> Estimate:
    """Measure a few tiles of the matrix at ``path`` here, and predict the job on ``slots`` cores.

    It measures on ``processes`` cores at once, by default on all of this machine. ``shared_out``:
    each of the ``instances`` has a share of the rows, not all. With ``rates`` it measures nothing.
    """
    with tempfile.TemporaryDirectory(prefix="raysm-estimate-") as scratch:
        matrix = open_matrix(path, Path(scratch), Selection.of(workload))
        if rates is not None:
            if rates.columns not in (None, matrix.columns):
                raise InvalidRequest(
                    f"--measured-by: that job compared rows of {rates.columns} columns, and "
                    f"{path.name} has {matrix.columns}; the time grows with the columns"
                )
            return predict(workload, matrix, rates, slots, instances, shared_out=shared_out)
        # At most half of the matrix, because a tile off the diagonal needs two blocks.
        rows = max(1, min(MAX_ROWS, matrix.rows // 2))
        question = [str(path), scratch, to_json(workload), rows, min_s]
        count = processes or min(slots, os.cpu_count() or 1)
        with ThreadPoolExecutor(count) as pool:
            measured = list(pool.map(_measure_in_process, [question] * count))
        rates = Rates(
            engine=measured[0].engine,
            rows=statistics.mean(one.rows for one in measured),
            pairs=statistics.mean(one.pairs for one in measured),
        )
        return predict(workload, matrix, rates, slots, instances, shared_out=shared_out)


def predict(
    workload: Similarity,
    matrix: Matrix,
    rates: Rates,
    slots: int,
    instances: int = 1,
    *,
    shared_out: bool = False,
) -> Estimate:
    """Divide the work among so many cores with these rates."""
    mode = choose_mode(workload)
    rows = matrix.rows
    sizing = Sizing(
        limits=mode.limits,
        footprint=SPARSE if compares_elements(matrix) else DENSE,
        queries=matrix,
        matrix=matrix,
        self_join=True,
        slots=slots,
        block_rows=workload.block_rows,
    )
    strips = mode.in_strips and not shared_out
    busy = min(slots, sizing.tasks)
    similarity_s = rows**2 / (1 if strips else 2) / rates.pairs / busy
    written = rows * (12 * workload.top_k + 8) if workload.top_k else 0
    full_bytes = rows**2 * np.dtype(workload.dtype).itemsize if mode.in_strips else 0
    parts = workload.parts or 1
    writers = min(parts, instances)
    # On the half ring of n instances (see ``rotation``), each receives the rows of half of the
    # others.
    coming_bytes = matrix.nbytes * (instances // 2) / instances if shared_out else 0.0
    return Estimate(
        rates=rates,
        slots=slots,
        tasks=sizing.tasks,
        phases_s={
            "prepare": rows / rates.rows / slots,
            # Scores are written, and rows are sent, while others are compared.
            "similarity": max(
                similarity_s, full_bytes / DISK_BYTES_S / writers, coming_bytes / NETWORK_BYTES_S
            ),
            "gathering": written / DISK_BYTES_S / writers,
        },
        parts=parts,
        coming_bytes=coming_bytes,
    )


def measure(path: str, scratch: str, asked: Any, rows: int, min_s: float) -> Rates:
    """Measure two blocks of ``rows`` from the beginning of the matrix, on one core."""
    workload: Similarity = from_json(Similarity, asked, "workload")
    location = Location(Path(path), Path(scratch), "here")
    source = Source(channel="matrix", selection=Selection.of(workload), location=location)
    matrix = source.open()
    mode = choose_mode(workload)
    shape = RowShape(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        dtype=matrix.dtype,
        ranges={location.host: RowBlock(0, matrix.rows)},
        sparse=compares_elements(matrix),
    )
    # The two blocks stand for the whole matrix: the other rows are not read.
    block = RowBlock(0, 2 * rows)
    prepare_s = _seconds(lambda: prepare_block(shape, block), min_s)
    part = run_preparation(prepare_block, shape, block)
    context = Context(matrix=make_operand(replace(shape, rows=block.rows), [(block, part)]))
    cache = get_engine_cache(context)
    above = RowBlock(0, rows)
    beside = RowBlock(rows, block.rows)
    task = TileTask(TileBlock(above, beside), self_join=not mode.in_strips)
    # Tasks know lower bounds of their rows for most of a run; here, those that each block finds
    # within itself.
    task = replace(task, hint=mode.probe_hint(context, above, beside))
    tile_s = _seconds(lambda: mode.compare(context, task), min_s)
    return Rates(engine=cache.engine.name, rows=block.rows / prepare_s, pairs=rows**2 / tile_s)


def _seconds(function: Callable[[], object], min_s: float) -> float:
    function()
    seconds: list[float] = []
    until = time.perf_counter() + min_s
    while not seconds or time.perf_counter() < until:
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def _measure_in_process(question: list[Any]) -> Rates:
    # -P: a random.py in the current folder would shadow the standard module.
    command = [sys.executable, "-P", "-m", "raysm.features.similarity.cluster.estimate"]
    # One thread, as in a task of one core. A process of its own, because BLAS reads the variable
    # when it is loaded.
    variables = environment.child_environment({"OMP_NUM_THREADS": "1"})
    text = json.dumps(question)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, env=variables, check=False
    )
    if done.returncode != 0:
        # The last line of a traceback is the error itself.
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RaysmError(f"a few tiles of {Path(question[0]).name} could not be measured: {last}")
    rates: Rates = from_json(Rates, json.loads(done.stdout), "rates")
    return rates


if __name__ == "__main__":
    sys.stdout.write(json.dumps(to_json(measure(*json.loads(sys.stdin.read())))) + "\n")

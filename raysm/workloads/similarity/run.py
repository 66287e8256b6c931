"""The similarity of all rows, on the head, from the channels to the manifest.

1. ``layouts.load`` has every instance map its files, or convert them once, and then knows where the rows lie.
2. ``modes.mode_of`` returns the mode; it refuses what rows like these cannot give.
3. ``gpus.choose_engine`` says whether GPUs compute; on the CPU, each process probes which engine is the fastest.
4. ``Layout.prepare`` has the norms and the centre of all rows computed where they lie: the ``Context``.
5. ``Sizing`` says how large tiles are, ``Layout.cut`` cuts all pairs into tasks and says which of them run where.
6. ``compare`` dispatches them: a task reads its rows, makes them ready, and has an engine compare them.
7. The ``Collector`` gives each part to the owners of its rows: the head, or instances that own ranges.
8. The owners write the result, with the same bytes wherever it was computed; the manifest is written last.

The answer depends on the rows and the request alone.
"""

import platform
import resource
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import ray

import raysm
from raysm.bootstrap.log import remark
from raysm.contract.events import Metric, State
from raysm.contract.result import Manifest, ResultFile
from raysm.errors import InvalidInput
from raysm.request.codec import to_json
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import instances, task_slots
from raysm.workloads.report import EmitEvent
from raysm.workloads.runner import Beginning
from raysm.workloads.similarity import gpus
from raysm.workloads.similarity.engines import CUDA
from raysm.workloads.similarity.layouts import Layout, compare, load
from raysm.workloads.similarity.modes import Mode, mode_of
from raysm.workloads.similarity.owners.collector import Collector
from raysm.workloads.similarity.reading.matrix import Described, describe
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.runs import Folders, Report, Run
from raysm.workloads.similarity.sizing import DENSE, GPU, SPARSE, Sizing
from raysm.workloads.similarity.tasks.parts import peak_memory_bytes

__all__ = ["Choices", "Folders", "run"]

MAX_ROWS = 1 << 32
"""Indices travel as 32 bits; N * N scores of more rows are beyond any cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """Choices that the machines make otherwise; none of them changes the answer."""

    engine: str | None = None
    """A word of the name of the engine that is to compute, or ``cuda``; None takes the GPUs, where there are any that
    can be used for this, or else lets a probe choose."""
    ranges: int | None = None
    """Ranges of rows, each of which an instance owns and writes; 1 leaves the result to the head; None takes what costs
    least."""


def run(
    workload: Similarity,
    *,
    job: str,
    source: Source,
    folders: Folders,
    emit_event: EmitEvent,
    queries: Source | None = None,
    # Frozen, so that all calls may have the same one.
    choices: Choices = Choices(),
) -> Manifest:
    """Compute the similarity on the connected Ray cluster and leave the result in ``folders.result``.

    Args:
        workload: What is asked for.
        job: The job's name, for the manifest.
        source: The matrix, as every task finds it.
        folders: Where the head writes.
        emit_event: Where events go.
        queries: Rows that look for neighbors in the matrix; None: its own rows do.
        choices: What the machines would decide.

    Returns:
        The manifest, which is also written, as the last file.

    Raises:
        InvalidInput: The matrix cannot be used, or has not enough rows; the message says what and where.
        NoRoom: A disk cannot hold the result.
        BlockFailed: A block failed on every attempt.
        InstanceLost: An instance went away for good whose rows are nowhere else.
    """
    emit_event(State(name="running"))
    _allow_files()
    report, mode = Report(emit_event=emit_event), mode_of(workload)
    with report.phase("load"):
        layout = load(source, queries)
    for rows in layout.operands:
        remark(f"{rows.source.channel}: {describe(rows.described, rows.source.selection, rows.source.expected)}")
    # Before the rows are prepared, which reads all of them.
    _check(mode, layout)
    with report.phase("prepare"):
        sparse = layout.compares_elements()
        against = gpus.reason_against(mode, layout, sparse=sparse)
        engine = gpus.choose_engine(choices.engine, against, layout.matrix.columns, report)
    # By what was chosen: GPUs compute also where the user did not ask for them.
    footprint = GPU if CUDA.is_meant_by(engine) else SPARSE if sparse else DENSE
    sizing = Sizing(
        limits=mode.limits,
        footprint=footprint,
        queries=layout.queries,
        matrix=layout.matrix,
        self_join=layout.self_join,
        # Where GPUs compute, they alone are slots: tiles cut for the cores beside them would be too many and too small.
        slots=task_slots(num_gpus=footprint.task.get("num_gpus", 0)),
        instances=instances(),
        block_rows=workload.block_rows,
        ranges=choices.ranges if workload.parts is None else workload.parts,
    )
    if not mode.is_worth_keeping(layout.matrix, sizing.slots, min(sizing.chosen_ranges, sizing.instances)):
        folders = replace(folders, lasting=False)
    with report.phase("prepare"):
        context, digests = layout.prepare(report, sparse=sparse, engine=engine, operand_rows=sizing.operand_rows)
    prepared = Run(
        workload=workload,
        folders=folders,
        matrix=layout.matrix,
        other_queries=None if layout.self_join else layout.queries,
        digests=digests,
        context=context,
    )
    files = _computed(prepared, mode, layout, sizing, report)
    for name, values in (("peak_memory_bytes", report.peaks), ("sent_bytes", report.sent_bytes)):
        for host, value in sorted(values.items()):
            emit_event(Metric(name=name, value=float(value), host=host))
    manifest = _manifest(prepared, layout, report, job, files)
    # Last: the result is whole once it is there.
    manifest.write(folders.result)
    return manifest


def _allow_files() -> None:
    """Raise the soft limit of open files to the hard one: each mapped file of the matrix, or large part, is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no limit and grants none that is not named.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _check(mode: Mode, layout: Layout) -> None:
    matrix, queries = layout.matrix, layout.queries
    if queries.columns != matrix.columns:
        raise InvalidInput(
            f"the queries have {queries.columns} columns, the matrix has {matrix.columns}; both need the same columns"
        )
    mode.check(queries, matrix, self_join=layout.self_join)
    for rows in (matrix.rows, queries.rows):
        if rows > MAX_ROWS:
            raise InvalidInput(f"the matrix has {rows} rows; at most {MAX_ROWS} can be compared with each other")


def _computed(run: Run, mode: Mode, layout: Layout, sizing: Sizing, report: Report) -> tuple[ResultFile, ...]:
    """Compare all pairs, and gather the result; what an earlier run recorded is not computed again."""
    record = run.record(mode.name + (" of shards" if layout.is_sharded else ""))
    # Before anything is cut: the sizes that an earlier run chose lie in its folder.
    dispatch = layout.cut(mode, sizing, record, run.context)
    with closing(
        Collector(
            mode,
            run,
            dispatch.tasks,
            dispatch.row_order,
            record,
            sizing.range_count(record),
            in_strips=dispatch.in_strips,
        )
    ) as collector:
        if collector.note:
            gpus.say(report, collector.note)
        files = None
        # Again, where an instance was lost with what it had taken in.
        while files is None:
            compare(dispatch, collector, run.context, run.queries.rows, report)
            run.folders.result.mkdir(parents=True, exist_ok=True)
            with report.gathering(run.queries.rows) as throttle:
                files = collector.gather(throttle)
        # Only now: a run that ends while it gathers finds all of it again.
        collector.remove_records()
    record.remove()
    return files


def _described(matrix: Described, sha256: str) -> dict[str, Any]:
    shape = {"sha256": sha256, "rows": matrix.rows, "columns": matrix.columns, "dtype": str(matrix.dtype)}
    return shape | {"files": len(matrix.names), "sparse": matrix.sparse}


def _measures(report: Report) -> Mapping[str, float]:
    return {
        "peak_memory_bytes": float(max(report.peaks.values(), default=0)),
        # This process's own, which is no task: it merges what tasks find.
        "head_peak_memory_bytes": float(peak_memory_bytes()),
        "task_seconds": round(report.task_seconds, 3),
        "blocks": float(report.blocks),
        "blocks_found": float(report.blocks_found),
        **{f"sent_bytes_{host}": float(count) for host, count in sorted(report.sent_bytes.items())},
    }


def _manifest(run: Run, layout: Layout, report: Report, job: str, files: tuple[ResultFile, ...]) -> Manifest:
    versions = {"raysm": raysm.__version__, "python": platform.python_version(), "ray": ray.__version__}
    return Manifest(
        job=job,
        workload=to_json(run.workload),
        # As their files have them: the work reads both matrices as one type.
        inputs={
            rows.source.channel: _described(rows.described, run.digests[rows.source.channel])
            for rows in layout.operands
        },
        files=files,
        # The bytes depend on both: a score on the order in which NumPy sums, a file on how Arrow writes it.
        versions=versions | {"numpy": np.__version__, "pyarrow": pa.__version__},
        # Those that did some of the work, as their parts say: others may have been there, and idle.
        instances=tuple(sorted(report.peaks)),
        engines=tuple(sorted(report.engines)),
        notes=tuple(report.notes),
        phases_s=report.phases_s,
        measures={**_measures(report), **Beginning.measures()},
    )

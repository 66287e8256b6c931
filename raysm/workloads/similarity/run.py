"""The whole workload, on the head.

The walk of a request through it, in ten lines:

1. ``layouts.load`` has every instance map its files, or convert them once, and knows then where the rows lie;
2. ``modes.mode_of`` finds what is asked for; it refuses what rows like these cannot give, and disks without room;
3. ``gpus.choose_engine`` says whether GPUs compute; on the CPU, each process probes which engine is the fastest;
4. ``layout.prepare`` has the norms, and the centre, of all rows computed where they lie: the ``Context`` is whole;
5. ``Sizing`` says how large tiles are, ``layout.cut`` cuts all pairs into tasks and says which of them run where;
6. ``compare`` dispatches them; a task reads its rows, makes them ready (``tasks``), and has an engine compare them;
7. the mode's ``compare`` makes a part of what the engine found, in which rows have their numbers in the matrix;
8. the part comes to the head, is recorded, and the mode's ``Collector`` takes it in; the layout dispatches the next;
9. the collector gathers one result, which ``output`` writes: the same bytes, whoever computed what;
10. the manifest says what was done, and is written last.

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
from raysm.workloads.beginning import Beginning
from raysm.workloads.blocks import instances, task_slots
from raysm.workloads.progress import EmitEvent
from raysm.workloads.similarity import gpus
from raysm.workloads.similarity.engines import CUDA
from raysm.workloads.similarity.layouts import Layout, compare, load
from raysm.workloads.similarity.modes import Mode, mode_of
from raysm.workloads.similarity.modes.owned.collector import OwnedCollector
from raysm.workloads.similarity.reading.matrix import Described, describe
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.runs import Folders, Report, Run
from raysm.workloads.similarity.sizing.footprint import DENSE, GPU, SPARSE, Footprint
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.tasks.parts import peak_memory_bytes

__all__ = ["Choices", "Folders", "run"]

MAX_ROWS = 1 << 32
"""Indices travel as 32 bits; N * N scores of more rows are beyond any cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What else is chosen by what the machines have; none of it changes the answer."""

    engine: str | None = None
    """A word of the name of the engine that is to compute, or ``cuda``; None takes the GPUs, where there are any that
    can be used for this, or else lets a probe choose."""
    merged_tiles: int | None = None
    """Tiles on a side of a group whose parts are merged on an instance, see ``partial_merge``; 1 leaves all to the
    head; None takes what costs least."""
    ranges: int | None = None
    """Ranges of rows, each of which an instance owns and writes; 0 leaves the result to the head; None takes what costs
    least."""
    dealt: bool | None = None
    """Of rows that are shared out, whether an instance hands out the pairs of chunks that it compares, where instances
    own ranges; None takes what costs least."""


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
        NoRoom: The head's disk cannot hold the result.
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
        computing = _chosen(mode, layout, choices, report)
    sizing = _sizing(workload, mode, layout, computing.footprint, choices)
    if not mode.is_worth_keeping(layout.matrix, sizing.slots, sizing.writers):
        folders = replace(folders, lasting=False)
    # Owners look for room themselves, each on its own instance.
    if not sizing.chosen_ranges:
        mode.check_room(layout.queries, layout.matrix, folders, source.here().scratch)
    with report.phase("prepare"):
        prepared = _prepared(workload, layout, folders, computing, report)
    files = _computed(prepared, mode, layout, sizing, report)
    for name, values in (("peak_memory_bytes", report.peaks), ("sent_bytes", report.sent_bytes)):
        for host, value in sorted(values.items()):
            emit_event(Metric(name=name, value=float(value), host=host))
    manifest = _manifest(prepared, layout, report, job, files)
    # Last: that it is there says that the result is whole.
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
    mode.check(queries, matrix)
    for rows in (matrix.rows, queries.rows):
        if rows > MAX_ROWS:
            raise InvalidInput(f"the matrix has {rows} rows; at most {MAX_ROWS} can be compared with each other")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Computing:
    """What is to compute."""

    sparse: bool
    """Rows are compared by their elements."""
    engine: str | None
    """See ``Choices``."""
    footprint: Footprint
    """What a task takes."""


def _chosen(mode: Mode, layout: Layout, choices: Choices, report: Report) -> _Computing:
    """Choose what computes, by what is known of the rows before any is read."""
    sparse = layout.compares_elements()
    against = gpus.reason_against(mode, layout, sparse=sparse)
    engine = gpus.choose_engine(choices.engine, against, layout.matrix.columns, report)
    # By what was chosen: GPUs compute where nobody asked for them, too.
    footprint = GPU if CUDA.is_meant_by(engine) else SPARSE if sparse else DENSE
    return _Computing(sparse=sparse, engine=engine, footprint=footprint)


def _prepared(workload: Similarity, layout: Layout, folders: Folders, computing: _Computing, report: Report) -> Run:
    """Learn what has to be known of all rows; return the run, which is whole now."""
    context, digests = layout.prepare(report, sparse=computing.sparse, engine=computing.engine)
    return Run(
        workload=workload,
        folders=folders,
        scratch=context.matrix.source.here().scratch,
        matrix=layout.matrix,
        queries=layout.queries,
        digests=digests,
        context=context,
    )


def _sizing(workload: Similarity, mode: Mode, layout: Layout, footprint: Footprint, choices: Choices) -> Sizing:
    return Sizing(
        limits=mode.limits,
        footprint=footprint,
        queries=layout.queries,
        matrix=layout.matrix,
        # Where GPUs compute, they alone are slots: tiles cut for the cores beside them would be too many and too small.
        slots=task_slots(num_gpus=footprint.task.get("num_gpus", 0)),
        instances=instances(),
        block_rows=workload.block_rows,
        merged_tiles=choices.merged_tiles,
        ranges=choices.ranges if workload.parts is None else Sizing.ranges_of(workload.parts),
        dealt=choices.dealt,
        spread=layout.spread,
    )


def _computed(run: Run, mode: Mode, layout: Layout, sizing: Sizing, report: Report) -> tuple[ResultFile, ...]:
    """Compare all pairs, and gather the result; what an earlier run recorded is not computed again."""
    # Before anything is cut: the sizes that an earlier run chose lie in its folder.
    record = mode.record(run, mode.name + layout.suffix)
    dispatch = layout.cut(run, mode, sizing, record)
    owned = mode.owned(run, dispatch, sizing) if (count := sizing.range_count(record)) else None
    with closing(
        mode.collect(run, dispatch, record, sizing)
        if owned is None
        else OwnedCollector(mode, owned, run, dispatch, record, count)
    ) as collector:
        for note in filter(None, (dispatch.note, collector.note)):
            gpus.say(report, note)
        files = None
        # Again, where an instance was lost with what it had taken in.
        while files is None:
            compare(run, mode, dispatch, collector, report)
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
        # This process's own: it merges what tasks find, and is none of them.
        "head_peak_memory_bytes": float(peak_memory_bytes()),
        "task_seconds": round(report.task_seconds, 3),
        "blocks": float(report.blocks),
        "blocks_found": float(report.blocks_found),
        **report.measures,
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

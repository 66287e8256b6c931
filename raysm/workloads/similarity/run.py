"""The similarity of all rows, on the head, from the channels to the manifest.

1. ``load`` has every instance map its files, or convert them once, and returns the ``Layout``: where the rows lie.
2. ``mode_of`` returns the mode; it refuses what rows like these cannot give.
3. ``choose_engine`` says whether GPUs compute; on the CPU, each process probes which engine is the fastest.
4. ``Layout.prepare`` has the norms and the centre of all rows computed where they lie: the ``Context``.
5. ``Sizing`` says how large tiles are, ``Layout.cut`` cuts all pairs into tasks and says which of them run where.
6. ``compare`` dispatches them: a task reads its rows, makes them ready, and has an engine compare them.
7. The ``Collector`` gives each part to the owners of its rows: the head, or instances that own ranges.
8. The owners write the result, with the same bytes wherever it was computed; the manifest is written last.

The answer depends on the rows and the request alone.
"""

import platform
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.exceptions import RayError

import raysm
from raysm.bootstrap.log import remark
from raysm.contract.events import Metric, State
from raysm.contract.result import Manifest, ResultFile
from raysm.errors import InvalidInput, InvalidRequest
from raysm.request.codec import to_json
from raysm.request.similarity import Similarity
from raysm.workloads.blocks import instances, task_slots
from raysm.workloads.nodes import Node, ask_every_node, cluster_nodes
from raysm.workloads.report import EmitEvent
from raysm.workloads.runner import Beginning
from raysm.workloads.similarity.engines.choice import CUDA, is_cuda, why_no_cuda
from raysm.workloads.similarity.layouts.layout import Layout, compare, load
from raysm.workloads.similarity.modes import mode_of
from raysm.workloads.similarity.modes.mode import Mode
from raysm.workloads.similarity.owners import Collector
from raysm.workloads.similarity.reading.matrix import Described, Source, describe
from raysm.workloads.similarity.runs import Folders, Report, Run
from raysm.workloads.similarity.sizing import DENSE, GPU, SPARSE, Sizing
from raysm.workloads.similarity.tasks.parts import peak_memory_bytes

MAX_ROWS = 1 << 32
"""Indices travel as 32 bits; N * N scores of more rows are beyond any cluster."""


def run(
    workload: Similarity,
    *,
    job: str,
    source: Source,
    folders: Folders,
    emit_event: EmitEvent,
    queries: Source | None = None,
    engine: str | None = None,
) -> Manifest:
    """Compute the similarity on the connected Ray cluster and leave the result in ``folders.result``.

    Args:
        workload: What is asked for.
        job: The job's name, for the manifest.
        source: The matrix, as every task finds it.
        folders: Where the head writes.
        emit_event: Where events go.
        queries: Rows that look for neighbors in the matrix; None: its own rows do.
        engine: A word of the name of the engine that is to compute, or ``cuda``; None takes the GPUs where they can be
            used for this, or else lets a probe choose.

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
        against = reason_against(mode, layout, sparse=sparse)
        engine = choose_engine(engine, against, layout.matrix.columns, report)
    # By what was chosen: GPUs compute also where the user did not ask for them.
    footprint = GPU if is_cuda(engine) else SPARSE if sparse else DENSE
    sizing = Sizing(
        limits=mode.limits,
        footprint=footprint,
        queries=layout.queries,
        matrix=layout.matrix,
        self_join=layout.self_join,
        # Where GPUs compute, they alone are slots: tiles cut for the cores beside them would be too many and too small.
        slots=task_slots(num_gpus=footprint.task.get("num_gpus", 0)),
        block_rows=workload.block_rows,
        parts=workload.parts or 1,
    )
    if not mode.is_worth_keeping(layout.matrix, sizing.slots, min(sizing.parts, instances())):
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
            sizing.parts,
            in_strips=dispatch.in_strips,
        )
    ) as collector:
        if collector.note:
            say(report, collector.note)
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


# ---- GPUs: all of the cluster's compute, and they alone, or none ---------------------------------------------------

ASK_S = 300.0
"""Seconds for an instance to say whether its GPU can be used: it imports torch and starts CUDA."""


def choose_engine(
    forced: str | None,
    against: str,
    columns: int,
    report: Report,
    nodes: Sequence[Node] | None = None,
    ask: Callable[[Sequence[Node], int], list[str]] | None = None,
) -> str | None:
    """Return what ``Context.engine`` is to be: GPUs where they can be used, and they alone.

    A GPU compares as many pairs a second as some hundred cores, so cores beside it would only make the end ragged.

    Args:
        forced: A word of the engine's name; None uses GPUs where there are any that can be used.
        against: Why GPUs do not compute what is asked for, or "".
        columns: Columns of the matrix.
        report: Takes notes of the choice.
        nodes: The instances that are there; None asks Ray.
        ask: Returns why the GPU of each node cannot be used for that many columns, or ""; None asks each.

    Raises:
        InvalidRequest: GPUs are asked for, and cannot be used.
    """
    is_forced = is_cuda(forced)
    # An engine of the CPU is asked for: GPUs are left alone, though there may be some.
    if forced is not None and not is_forced:
        return forced
    alive = cluster_nodes() if nodes is None else nodes
    able = [node for node in alive if node.gpus]
    if not able:
        if is_forced:
            raise InvalidRequest(f"the engine {CUDA!r} is asked for, and no instance has a GPU")
        return None
    # The instances are asked last, and only where nothing else speaks against it: each imports torch to answer.
    if not against:
        answers = zip(able, (ask or _ask)(able, columns), strict=True)
        against = "; ".join(f"on {_host(node)}, {answer}" for node, answer in answers if answer)
    if against:
        if is_forced:
            raise InvalidRequest(f"the engine {CUDA!r} is asked for, and cannot be used: {against}")
        say(report, f"warning: the GPUs are not used, the CPUs compute instead: {against}")
        return None
    # A head that only coordinates is idle anyhow, and not named.
    idle = sorted(_host(node) for node in alive if node.cpus and not node.gpus)
    if idle:
        say(report, f"the GPUs alone compute, not the instances that have none: {', '.join(idle)}")
    return CUDA


def reason_against(mode: Mode, layout: Layout, *, sparse: bool) -> str:
    """Return why GPUs do not compute what is asked for, or ""."""
    by_elements = "sparse rows are compared by the columns that they share" if sparse else ""
    return mode.without_gpus or by_elements or layout.without_gpus


def _ask(nodes: Sequence[Node], columns: int) -> list[str]:
    answers = []
    # Each with a GPU of its own: Ray hides them from a task that asks for none.
    for reference in ask_every_node(why_no_cuda, columns, nodes=nodes, num_gpus=1, max_retries=1).values():
        try:
            answers.append(ray.get(reference, timeout=ASK_S))
        # A time limit that passed is one too. GPUs are but faster: silence must not fail a job that CPUs can do.
        except RayError as error:
            answers.append(f"nothing is heard of it ({type(error).__name__})")
    return answers


def say(report: Report, text: str) -> None:
    """Log how it is computed, and note it for the manifest."""
    remark(text)
    report.notes.append(text)


def _host(node: Node) -> str:
    return node.host or "an instance"

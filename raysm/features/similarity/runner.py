"""The similarity of all rows, on the head: from the channels to the manifest.

``SimilarityRunner`` compiles the kernels while the cluster forms. Then ``run`` does the work:

1. ``choose_mode`` returns the mode that the request asks for.
2. ``load`` has every instance map its files, or convert them once, and returns the ``Layout``:
   where the rows lie. The mode then checks that these rows can give what is asked for.
3. ``choose_engine`` says whether GPUs compute; on the CPU, each process probes which engine is the
   fastest.
4. ``Sizing`` says how large tiles are.
5. ``Layout.prepare`` has the norms and the centre of all rows computed where they lie, and returns
   the ``Context``.
6. ``Layout.dispatch`` splits all pairs into tasks and says which of them run where.
7. ``compare`` dispatches the tasks: each reads its rows, prepares them, and has an engine compare
   them.
8. The ``Collector`` gives each part to the owners of its rows: the head, or instances that own
   ranges.
9. The owners write the result, with the same bytes wherever it was computed. The manifest is
   written last, into the same folder.

The answer depends on the rows and the request alone. Finished tasks are recorded among the
checkpoints, so that a job that is stopped continues later.
"""

import math
import platform
import resource
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.exceptions import RayError

import raysm
from raysm.core.protocol.events import Metric, State
from raysm.core.protocol.result import Manifest, ResultFile
from raysm.core.protocol.store import remove_unfinished
from raysm.core.request.codec import to_json
from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.similarity.cluster.engines.choice import (
    CUDA,
    compile_ahead,
    is_cuda,
    why_no_cuda,
)
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.layout import Layout, compare, load
from raysm.features.similarity.cluster.modes import choose_mode
from raysm.features.similarity.cluster.modes.mode import Mode
from raysm.features.similarity.cluster.owners import Collector, count_ranges
from raysm.features.similarity.cluster.reading import files
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import MatrixInfo, Source, describe
from raysm.features.similarity.cluster.run import Folders, Report, Run
from raysm.features.similarity.cluster.tasks import peak_memory_bytes
from raysm.features.similarity.cluster.tiling import DENSE, GPU, SPARSE, Sizing
from raysm.features.similarity.request import MATRIX, QUERIES, Similarity
from raysm.instance import environment as environments
from raysm.instance.environment import Environment
from raysm.instance.log import emit_event, remark
from raysm.instance.ray_internals import spare_pydantic
from raysm.instance.work.blocks import instances, task_slots
from raysm.instance.work.nodes import Node, ask_every_node, cluster_nodes
from raysm.instance.work.report import EmitEvent
from raysm.instance.work.runner import Runner, beginning, leave, leave_on_sigterm

__all__ = ["SimilarityRunner", "folders_here"]


def folders_here() -> Folders:
    """Return where this instance writes, if it owns rows of the result."""
    return _make_folders(environments.read())


def _make_folders(environment: Environment) -> Folders:
    is_durable = environment.has_checkpoints
    return Folders(
        result=environment.paths.model,
        records=environment.paths.records(lasting=is_durable),
        is_durable=is_durable,
    )


class SimilarityRunner(Runner[Similarity]):
    def prepare(self) -> None:
        """Compile, and start to digest the channels that are complete here.

        Both take seconds, and neither needs the cluster.
        """
        for name in {MATRIX, QUERIES} & set(self.request.inputs) - self._spread():
            files.start_digest(Source(channel=name).here().channel)
        compile_ahead()

    def run(self, address: str) -> None:
        spare_pydantic()
        source, queries = self._sources()
        # What is finished is on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm(self._clean)
        # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other
        # one.
        ray.init(address=address, log_to_driver=False, configure_logging=False)
        leave_on_sigterm(self._clean)
        folders = replace(_make_folders(self.environment), on_instance=folders_here)
        try:
            run(
                self.workload,
                job=self.request.name,
                source=source,
                folders=folders,
                emit_event=emit_event,
                queries=queries,
            )
        except BaseException:
            ray.shutdown()
            raise
        finally:
            self._clean()
        leave()

    def _spread(self) -> set[str]:
        """Return the channels of which each instance has but a share."""
        inputs = self.request.inputs
        return {
            name for name, channel in inputs.items() if channel.distribution != "FullyReplicated"
        }

    def _sources(self) -> tuple[Source, Source | None]:
        # One instance has all that there is, however it was shared out.
        shares = self._spread() & {MATRIX, QUERIES} if len(self.environment.hosts) > 1 else set()

        def source(channel: str) -> Source:
            return Source(
                channel=channel,
                selection=Selection.of(self.workload, channel),
                sharded=channel in shares,
            )

        return source(MATRIX), source(QUERIES) if QUERIES in self.request.inputs else None

    def _clean(self) -> None:
        # What was growing there when SIGTERM came: a job that is stopped has its model folder
        # uploaded too.
        remove_unfinished(self.environment.paths.model)
        if not self.environment.has_checkpoints:
            shutil.rmtree(self.environment.paths.records(lasting=False), ignore_errors=True)


MAX_ROWS = 1 << 32
"""Indices are sent as 32 bits; N * N scores of more rows are beyond any cluster."""


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
    """Compute the similarity on the connected Ray cluster, into ``folders.result``.

    ``queries`` look for neighbors in the matrix; None: its own rows do. ``engine`` is a word of the
    name of the engine to use, or ``cuda``; None uses the GPUs if they can compute this, and
    otherwise lets a probe choose. The manifest is also written, as the last file.
    """
    emit_event(State(name="running"))
    # Raise the soft limit of open files to the hard one: each mapped file counts, of the matrix and
    # of large parts.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports an infinite hard limit and then refuses it.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    report = Report(emit_event=emit_event)
    mode = choose_mode(workload)
    with report.phase("load"):
        layout = load(source, queries, small_bytes=workload.small_input_bytes)
    for rows in layout.operands:
        remark(
            f"{rows.source.channel}: "
            f"{describe(rows.described, rows.source.selection, rows.source.expected)}"
        )
    # Before the rows are prepared, which reads all of them.
    _check(mode, layout)
    with report.phase("prepare"):
        sparse = layout.compares_elements()
        by_elements = "sparse rows are compared by the columns that they share" if sparse else ""
        against = mode.without_gpus or by_elements or layout.without_gpus
        pairs = layout.queries.rows * layout.matrix.rows / (2 if layout.self_join else 1)
        engine = choose_engine(engine, against, layout.matrix.columns, report, pairs)
    # This follows the engine that was chosen, not the one that was asked for: GPUs may compute
    # without being asked for.
    if is_cuda(engine):
        footprint = GPU
    else:
        footprint = SPARSE if sparse else DENSE
    sizing = Sizing(
        limits=mode.limits,
        footprint=footprint,
        queries=layout.queries,
        matrix=layout.matrix,
        self_join=layout.self_join,
        # If GPUs compute, only they are slots: tiles cut for the cores as well would be too many
        # and too small.
        slots=task_slots(num_gpus=footprint.task.get("num_gpus", 0)),
        block_rows=workload.block_rows,
        parts=workload.parts or 1,
    )
    if not mode.is_worth_keeping(layout.matrix, sizing.slots, min(sizing.parts, instances())):
        folders = replace(folders, is_durable=False)
    with report.phase("prepare"):
        context, digests = layout.prepare(
            report, sparse=sparse, engine=engine, operand_rows=sizing.operand_rows
        )
    prepared = Run(
        workload=workload,
        folders=folders,
        matrix=layout.matrix,
        other_queries=None if layout.self_join else layout.queries,
        digests=digests,
        context=context,
    )
    files = _compute(prepared, mode, layout, sizing, report)
    for name in sorted(report.engines):
        # With a reason in its name, it stood in for compiled kernels that could not be used.
        if name.startswith(f"{PlainEngine.name} ("):
            say(report, f"compared by {name}: several times slower than by compiled kernels")
    for name, values in (("peak_memory_bytes", report.peaks), ("sent_bytes", report.sent_bytes)):
        for host, value in sorted(values.items()):
            emit_event(Metric(name=name, value=float(value), host=host))
    manifest = _manifest(prepared, layout, report, job, files)
    # The manifest is written last: its presence says that the result is complete.
    manifest.write(folders.result)
    return manifest


def _check(mode: Mode, layout: Layout) -> None:
    matrix = layout.matrix
    queries = layout.queries
    if queries.columns != matrix.columns:
        raise InvalidInput(
            f"the queries have {queries.columns} columns, the matrix has {matrix.columns}; both "
            "need the same columns"
        )
    mode.check(queries, matrix, self_join=layout.self_join)
    for rows in (matrix.rows, queries.rows):
        if rows > MAX_ROWS:
            raise InvalidInput(
                f"the matrix has {rows} rows; at most {MAX_ROWS} can be compared with each other"
            )


def _compute(
    run: Run, mode: Mode, layout: Layout, sizing: Sizing, report: Report
) -> tuple[ResultFile, ...]:
    record = run.record(mode.name + (" of shards" if layout.is_sharded else ""))
    # The record comes before the cut: its folder has the sizes that an earlier run chose.
    dispatch = layout.dispatch(mode, sizing, record, run.context)
    with closing(
        Collector(
            mode,
            run,
            dispatch.tasks,
            dispatch.row_order,
            record,
            count_ranges(mode, run.queries.rows, run.workload.parts, record),
            in_strips=dispatch.in_strips,
            one_file=sizing.parts == 1,
        )
    ) as collector:
        if collector.note:
            say(report, collector.note)
        files = None
        # ``gather`` returns None if an instance was lost with the pieces that it had merged.
        while files is None:
            compare(dispatch, collector, run.context, run.queries.rows, report)
            run.folders.result.mkdir(parents=True, exist_ok=True)
            with report.gathering(run.queries.rows) as throttle:
                files = collector.gather(throttle)
        # Records are removed only now: if a run ends while it gathers, the next one finds all of
        # them.
        collector.remove_records()
    record.remove()
    return files


def _describe_input(matrix: MatrixInfo, sha256: str) -> dict[str, Any]:
    shape = {
        "sha256": sha256,
        "rows": matrix.rows,
        "columns": matrix.columns,
        "dtype": str(matrix.dtype),
    }
    return shape | {"files": len(matrix.names), "sparse": matrix.sparse}


def _measures(report: Report) -> Mapping[str, float]:
    return {
        "peak_memory_bytes": float(max(report.peaks.values(), default=0)),
        # The peak of this process, which runs no task but merges the results of all.
        "head_peak_memory_bytes": float(peak_memory_bytes()),
        "task_seconds": round(report.task_seconds, 3),
        "blocks": float(report.blocks),
        "blocks_found": float(report.blocks_found),
        **report.timings(),
        **{f"sent_bytes_{host}": float(count) for host, count in sorted(report.sent_bytes.items())},
    }


def _manifest(
    run: Run, layout: Layout, report: Report, job: str, files: tuple[ResultFile, ...]
) -> Manifest:
    versions = {
        "raysm": raysm.__version__,
        "python": platform.python_version(),
        "ray": ray.__version__,
    }
    return Manifest(
        job=job,
        workload=to_json(run.workload),
        # Types as in the files: the tasks read both matrices as one common type.
        inputs={
            rows.source.channel: _describe_input(rows.described, run.digests[rows.source.channel])
            for rows in layout.operands
        },
        files=files,
        # The result's bytes depend on both: scores on the order in which NumPy sums, files on how
        # Arrow writes them.
        versions=versions | {"numpy": np.__version__, "pyarrow": pa.__version__},
        # Only instances that returned a part: others may have been idle.
        instances=tuple(sorted(report.peaks)),
        engines=tuple(sorted(report.engines)),
        notes=tuple(report.notes),
        phases_s=report.phases_s,
        measures={**_measures(report), **beginning},
    )


# ---- GPUs: either all GPUs of the cluster compute, without the cores, or none does
# ---------------------------------------------------

ASK_S = 300.0
"""Seconds for an instance to say whether its GPU can be used: it imports torch and starts CUDA."""

GPU_START_S = 6
"""Seconds until GPUs compute: torch is imported and CUDA started twice, to ask whether it works and
in the tasks."""

CORE_RATE = 1e11
"""Products of two elements that a core computes in a second, at least; 3e11 with VNNI, 5e11 with
AMX."""


def choose_engine(
    forced: str | None,
    against: str,
    columns: int,
    report: Report,
    pairs: float = math.inf,
    nodes: Sequence[Node] | None = None,
    ask: Callable[[Sequence[Node], int], list[str]] | None = None,
) -> str | None:
    """Return the value of ``Context.engine``: GPUs if they can be used, and then without the CPUs.

    An H200 compares as many pairs a second as 60 cores with AMX or 90 with VNNI, so cores beside it
    would only finish later. If there are so few ``pairs`` that the CPUs need less time than GPUs
    take to start, the CPUs compute. ``forced`` is the user's word for an engine, ``against`` why
    GPUs do not compute what is asked for, or "".

    Raises:
        InvalidRequest: GPUs are asked for, and cannot be used.
    """
    is_forced = is_cuda(forced)
    # The caller asked for an engine of the CPU: do not look for GPUs.
    if forced is not None and not is_forced:
        return forced
    alive = cluster_nodes() if nodes is None else nodes
    able = [node for node in alive if node.gpus]
    if not able:
        if is_forced:
            raise InvalidRequest(f"the engine {CUDA!r} is asked for, and no instance has a GPU")
        return None
    if not is_forced and not against:
        cores = sum(node.cpus for node in alive)
        if pairs * columns < CORE_RATE * cores * GPU_START_S:
            say(
                report,
                f"the CPUs compute, and need less time than the {GPU_START_S} s that GPUs take to "
                "start",
            )
            return None
    # Ask the instances last, and only if nothing else rules GPUs out: each imports torch to answer.
    if not against:
        answers = zip(able, (ask or _ask)(able, columns), strict=True)
        against = "; ".join(f"on {_host(node)}, {answer}" for node, answer in answers if answer)
    if against:
        if is_forced:
            raise InvalidRequest(f"the engine {CUDA!r} is asked for, and cannot be used: {against}")
        say(report, f"warning: the GPUs are not used, the CPUs compute instead: {against}")
        return None
    # The note does not name a head that only coordinates: it is always idle.
    idle = sorted(_host(node) for node in alive if node.cpus and not node.gpus)
    if idle:
        say(report, f"the GPUs alone compute, not the instances that have none: {', '.join(idle)}")
    return CUDA


def _ask(nodes: Sequence[Node], columns: int) -> list[str]:
    answers = []
    # Each task asks for a GPU: Ray hides GPUs from others (``variables.gpu_variables``).
    for reference in ask_every_node(
        why_no_cuda, columns, nodes=nodes, num_gpus=1, max_retries=1
    ).values():
        try:
            answers.append(ray.get(reference, timeout=ASK_S))
        # A timeout is a RayError too. An instance that does not answer must not fail a job that
        # CPUs can do.
        except RayError as error:
            answers.append(f"nothing is heard of it ({type(error).__name__})")
    return answers


def say(report: Report, text: str) -> None:
    remark(text)
    report.notes.append(text)


def _host(node: Node) -> str:
    return node.host or "an instance"

"""The whole workload, on the head: prepare, compute in share-nothing tasks, gather, say what was done.

Phases: ``load`` (every instance maps its matrix, or converts it once), ``prepare`` (norms, the centre, and what cannot
be used), ``similarity`` (the tiles), ``gathering`` (one file). The answer depends on the matrix and the request alone.
"""

import platform
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import raysm
from raysm.contract.events import Metric, State
from raysm.contract.result import Manifest, ResultFile
from raysm.errors import InvalidInput, InvalidRequest
from raysm.request.codec import to_json
from raysm.request.similarity import Similarity
from raysm.workloads.announce import Announce
from raysm.workloads.blocks import RowBlock, map_blocks, task_slots
from raysm.workloads.similarity import gpus, output
from raysm.workloads.similarity.engines import compile_ahead
from raysm.workloads.similarity.layouts.sharded import modes as sharded_modes
from raysm.workloads.similarity.layouts.sharded.shards import Shards
from raysm.workloads.similarity.modes import compute as modes
from raysm.workloads.similarity.reading import digests
from raysm.workloads.similarity.reading.matrix import Described, Matrix, alike
from raysm.workloads.similarity.sizing import sizes
from raysm.workloads.similarity.tasks import preparing
from raysm.workloads.similarity.tasks.context import Context, Source, peak_memory_bytes
from raysm.workloads.similarity.tasks.parts import Part, measured
from raysm.workloads.similarity.work import Folders, Work

__all__ = ["Folders", "run"]

MAX_ROWS = 1 << 32
"""Indices travel as 32 bits; N * N scores of more rows are beyond any cluster."""


def run(
    workload: Similarity,
    *,
    job: str,
    source: Source,
    folders: Folders,
    announce: Announce,
    queries: Source | None = None,
    engine: str | None = None,
    merged_tiles: int | None = None,
) -> Manifest:
    """Compute the similarity on the connected Ray cluster and leave the result in ``folders.result``.

    Args:
        workload: What is asked for.
        job: The job's name, for the manifest.
        source: The matrix, as every task finds it.
        folders: Where the head writes.
        announce: Where events go.
        queries: Rows that look for neighbors in the matrix; None: its own rows do.
        engine: A word of the name of the engine that is to compute, or ``cuda``; None takes the GPUs, where there are
            any that can be used for this, or else lets a probe choose.
        merged_tiles: Tiles on a side of a group whose parts are merged on an instance, see ``merging``; 1 leaves all to
            the head; None takes what costs least.

    Returns:
        The manifest, which is also written, as the last file.

    Raises:
        InvalidInput: The matrix cannot be used, or has not enough rows; the message says what and where.
        NoRoom: The head's disk cannot hold the result.
        BlockFailed: A block failed on every attempt.
    """
    announce(State(name="running"))
    _allow_files()
    begin = time.perf_counter()
    sources = [source] if queries is None else [source, queries]
    shards = Shards(source) if source.sharded else None
    opened = [] if shards is not None else alike(_load(sources))
    work = Work(
        workload=workload,
        folders=folders,
        scratch=source.here().scratch,
        announce=announce,
        matrix=opened[0] if shards is None else shards.matrix,
        queries=opened[1] if queries else None,
        context=_begun(source, opened[0], sparse=_by_elements(opened)) if shards is None else shards.context(),
        merged_tiles=merged_tiles,
    )
    work.phases_s["load"] = round(time.perf_counter() - begin, 4)
    _check(work)
    with work.phase("prepare"):
        if shards is None:
            _prepare(work, sources)
        else:
            _prepare_shards(work, shards)
    work.context = replace(work.context, engine=gpus.choose_engine(work, engine))
    files = modes.compute(work) if shards is None else sharded_modes.compute(work, shards.deal(work))
    files += _ids(work)
    for host, peak in sorted(work.peaks.items()):
        announce(Metric(name="peak_memory_bytes", value=float(peak), host=host))
    for host, sent in sorted(work.sent_bytes.items()):
        announce(Metric(name="sent_bytes", value=float(sent), host=host))
    return _manifest(work, job, sources, files)


def _allow_files() -> None:
    """Raise the soft limit of open files to the hard one: each mapped file of the matrix, or large part, is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no limit and grants none that is not named.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _load(sources: list[Source]) -> list[Matrix]:
    """Map the matrices here, while every other instance does the same; raise what any of them cannot use."""
    here = ray.get_runtime_context().get_node_id()
    loader = ray.remote(max_retries=2)(_load_there)
    others = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] != here and node["Resources"].get("CPU")]
    loading = [
        loader.options(
            num_cpus=1, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(sources)
        for node in others
    ]
    opened = [source.open() for source in sources]
    for reference in loading:
        try:
            ray.get(reference)
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, InvalidRequest):
                raise cause from None
            raise
        except RayError:
            # The instance went away; whoever works there next converts what it needs.
            continue
    return opened


def _load_there(sources: list[Source]) -> None:
    compile_ahead()
    for source in sources:
        try:
            source.open()
        except InvalidInput as error:
            raise InvalidInput(f"on {source.here().host}: {error}") from error


def _begun(source: Source, matrix: Described, *, sparse: bool) -> Context:
    return Context(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        dtype=matrix.dtype,
        norms=np.empty(0),
        exponents=np.empty(0, dtype=np.int16),
        sparse=sparse,
    )


def _by_elements(matrices: list[Matrix]) -> bool:
    """Return whether all matrices are sparse, and rows are compared by the columns that they share."""
    return all(one.sparse for one in matrices) and preparing.compares_elements(matrices[0])


def _check(work: Work) -> None:
    matrix, queries, k = work.matrix, work.queries, work.workload.top_k
    if queries is not None and queries.columns != matrix.columns:
        raise InvalidInput(
            f"the queries have {queries.columns} columns, the matrix has {matrix.columns}; both need the same"
        )
    if k is not None and queries is not None and k > matrix.rows:
        raise InvalidInput(
            f"{k} neighbors of each row are more than the {matrix.rows} rows of the matrix; ask for fewer"
        )
    if k is not None and queries is None and k > matrix.rows - 1:
        raise InvalidInput(
            f"{k} neighbors of each row are more than the {matrix.rows - 1} other rows of a matrix of {matrix.rows}; "
            "ask for fewer"
        )
    for rows in (matrix.rows, work.seekers.rows):
        if rows > MAX_ROWS:
            raise InvalidInput(f"the matrix has {rows} rows; at most {MAX_ROWS} can be compared with each other")
    places = work.folders.result, work.folders.records, work.scratch
    sizes.check_result_room(work.workload, work.seekers, matrix, places)


def _prepare(work: Work, sources: list[Source]) -> None:
    """Learn what has to be known of all rows, and the digests of what they are read from."""
    # It reads the same files as the tasks do, beside them: one pass of the disk.
    digesting = [digests.digest(source.here().channel) for source in sources]
    context = work.context
    known = preparing.prepared(context, _prepare_parts(work, context))
    queries = None
    if work.queries is not None:
        begun = _begun(sources[1], work.queries, sparse=context.sparse)
        fields = preparing.prepared(begun, _prepare_parts(work, begun), name="the queries")
        queries = replace(begun, **fields)
    work.context = replace(context, **known, queries=queries)
    work.digests = {source.channel: found.result() for source, found in zip(sources, digesting, strict=True)}


def _prepare_shards(work: Work, shards: Shards) -> None:
    """Learn the same of rows that lie on many instances."""
    context = shards.context()
    with ThreadPoolExecutor(max_workers=1) as pool:
        digesting = pool.submit(shards.digest)
        known = preparing.prepared(context, shards.prepare(work, context))
        work.digests = {context.source.channel: digesting.result()}
    work.context = replace(context, **known)


def _prepare_parts(work: Work, context: Context) -> Iterator[tuple[RowBlock, Part]]:
    function = partial(measured, preparing.prepare_block, context)
    for block, part in map_blocks(function, preparing.prepare_blocks(context, task_slots())):
        work.took_part(part)
        yield block, part


def _ids(work: Work) -> tuple[ResultFile, ...]:
    """Write the ids of the rows and columns of the full matrix; other results have them in their own files."""
    ids = modes.ids_of(work) if work.workload.full else None
    if ids is None:
        return ()
    folder = work.folders.result
    columns = output.write_ids(folder / output.IDS, ids.neighbors)
    return (columns,) if work.queries is None else (columns, output.write_ids(folder / output.QUERY_IDS, ids.rows))


def _described(matrix: Described, sha256: str) -> dict[str, Any]:
    shape = {"sha256": sha256, "rows": matrix.rows, "columns": matrix.columns, "dtype": str(matrix.dtype)}
    return shape | {"files": len(matrix.names), "sparse": matrix.sparse}


def _manifest(work: Work, job: str, sources: list[Source], files: tuple[ResultFile, ...]) -> Manifest:
    # As their files have them; those of the work are read as one type.
    matrices: list[Described] = [work.matrix] if sources[0].sharded else [source.open() for source in sources]
    manifest = Manifest(
        job=job,
        workload=to_json(work.workload),
        inputs={
            source.channel: _described(matrix, work.digests[source.channel])
            for source, matrix in zip(sources, matrices, strict=True)
        },
        files=files,
        versions={
            "raysm": raysm.__version__,
            "python": platform.python_version(),
            "ray": ray.__version__,
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
        instances=tuple(sorted(work.peaks)),
        engines=tuple(sorted(work.engines)),
        notes=tuple(work.notes),
        phases_s=work.phases_s,
        measures={
            "peak_memory_bytes": float(max(work.peaks.values(), default=0)),
            "head_peak_memory_bytes": float(peak_memory_bytes()),
            "task_seconds": round(work.task_seconds, 3),
            "blocks": float(work.blocks),
            "blocks_found": float(work.blocks_found),
            **{f"sent_bytes_{host}": float(sent) for host, sent in sorted(work.sent_bytes.items())},
        },
    )
    manifest.write(work.folders.result)
    return manifest

"""The whole workload, on the head: prepare, compute in share-nothing tasks, gather, say what was done.

Phases: ``load`` (every instance maps its matrix, or converts it once), ``prepare`` (norms, and what cannot be used),
``similarity`` (the blocks), ``gathering`` (one file). The answer depends on the matrix and the request alone.
"""

import math
import platform
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import raysm
from raysm.contract.events import Metric, State
from raysm.contract.result import Manifest, ResultFile
from raysm.contract.store import sha256_of
from raysm.errors import InvalidInput, InvalidRequest
from raysm.request.codec import to_json
from raysm.request.workload import Similarity
from raysm.workloads.announce import Announce, Pace
from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks, row_blocks, task_slots
from raysm.workloads.gather import ArrayFile, check_room, move
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import full, output, sizes, threshold, topk
from raysm.workloads.similarity.context import Context, Source, peak_memory_bytes, tile_rows
from raysm.workloads.similarity.matrix import Matrix, digest
from raysm.workloads.similarity.npy import header
from raysm.workloads.similarity.parts import Part, decode_part, encode_part, measured
from raysm.workloads.similarity.score import prepare

__all__ = ["Folders", "run"]

MAX_ROWS = 1 << 32
"""Indices travel as 32 bits; N * N scores of more rows are beyond any cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """Where the head writes."""

    result: Path
    """The result and its manifest."""
    records: Path
    """Finished blocks; kept from one run of the job to the next where checkpoints are."""


@dataclass(slots=True)
class _Run:
    """What the phases tell each other."""

    workload: Similarity
    source: Source
    folders: Folders
    announce: Announce
    matrix: Matrix
    context: Context
    sha256: str = ""
    phases_s: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    task_seconds: float = 0.0
    blocks: int = 0
    blocks_found: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.phases_s[name] = round(time.perf_counter() - begin, 4)

    def took_part(self, part: Part) -> None:
        self.peaks[part.host] = max(self.peaks[part.host], part.peak_memory_bytes)
        self.task_seconds += part.seconds


def run(workload: Similarity, *, job: str, source: Source, folders: Folders, announce: Announce) -> Manifest:
    """Compute the similarity on the connected Ray cluster and leave the result in ``folders.result``.

    Args:
        workload: What is asked for.
        job: The job's name, for the manifest.
        source: The matrix, as every task finds it.
        folders: Where the head writes.
        announce: Where events go.

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
    matrix = _load(source)
    context = Context(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        norms=np.empty(0),
        exponents=np.empty(0, dtype=np.int16),
    )
    work = _Run(workload, source, folders, announce, matrix, context)
    work.phases_s["load"] = round(time.perf_counter() - begin, 4)
    _check(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        # It reads the same file as the norms do, beside them: one pass of the disk.
        digesting: Future[str] = pool.submit(digest, source.here().channel)
        with work.phase("prepare"):
            work.context = _prepare(work)
            work.sha256 = digesting.result()
    if workload.top_k is not None:
        files = _top_k(work, workload.top_k)
    elif workload.threshold is not None:
        files = _threshold(work, np.float32(workload.threshold))
    else:
        files = _full(work)
    if work.matrix.id_files and workload.top_k is None:
        files += (output.write_ids(folders.result, work.matrix),)
    for host, peak in sorted(work.peaks.items()):
        announce(Metric(name="peak_memory_bytes", value=float(peak), host=host))
    return _manifest(work, job, files)


def _allow_files() -> None:
    """Raise the soft limit of open files to the hard one: each mapped file of the matrix, or large part, is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no limit and grants none that is not named.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _load(source: Source) -> Matrix:
    """Map the matrix here, while every other instance does the same; raise what any of them cannot use."""
    here = ray.get_runtime_context().get_node_id()
    loader = ray.remote(max_retries=2)(_load_there)
    others = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] != here and node["Resources"].get("CPU")]
    loading = [
        loader.options(
            num_cpus=1, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(source)
        for node in others
    ]
    matrix = source.open()
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
    return matrix


def _load_there(source: Source) -> None:
    try:
        source.open()
    except InvalidInput as error:
        raise InvalidInput(f"on {source.here().host}: {error}") from error


def _check(work: _Run) -> None:
    rows, k = work.matrix.rows, work.workload.top_k
    if k is not None and k > rows - 1:
        raise InvalidInput(f"top_k={k} is more than the {rows - 1} other rows of a matrix of {rows}; ask for fewer")
    if rows > MAX_ROWS:
        raise InvalidInput(f"the matrix has {rows} rows; at most {MAX_ROWS} can be compared with each other")
    sizes.check_result_room(work.workload, work.matrix, work.folders.result, work.folders.records)


def _norms_block(context: Context, block: RowBlock) -> dict[str, NDArray[Any]]:
    matrix = context.open()
    step = tile_rows(2 * context.columns)
    found = [prepare(matrix.read(at, min(at + step, block.stop))) for at in range(block.start, block.stop, step)]
    bad = [at * step + norms.first_bad for at, norms in enumerate(found) if norms.first_bad is not None]
    return {
        "norms": np.concatenate([norms.norms for norms in found]),
        "exponents": np.concatenate([norms.exponents for norms in found]),
        "whole": np.array(all(norms.whole for norms in found)),
        "first_bad": np.array(block.start + bad[0] if bad else -1),
    }


def _prepare(work: _Run) -> Context:
    rows = work.matrix.rows
    norms, exponents = np.empty(rows), np.empty(rows, dtype=np.int16)
    whole, first_bad = True, rows
    size = max(1, min(1 << 20, math.ceil(rows / (2 * task_slots()))))
    function = partial(measured, _norms_block, work.context)
    for block, part in map_blocks(function, row_blocks(rows, size)):
        norms[block.start : block.stop] = part.arrays["norms"]
        exponents[block.start : block.stop] = part.arrays["exponents"]
        whole = whole and bool(part.arrays["whole"])
        bad = int(part.arrays["first_bad"])
        first_bad = min(first_bad, bad if bad >= 0 else rows)
        work.took_part(part)
    if first_bad < rows:
        raise InvalidInput(
            f"row {first_bad} of the matrix (counted from 0) holds NaN or infinity, the first such row; replace it"
        )
    return Context(
        source=work.source,
        rows=rows,
        columns=work.matrix.columns,
        norms=norms,
        exponents=exponents if exponents.any() else np.empty(0, dtype=np.int16),
        whole=whole,
    )


def _depends_on(work: _Run, kind: str) -> dict[str, Any]:
    # Of the block size, what was asked for: where nothing was, the record itself keeps the size that was chosen.
    depends_on = {"format": 2, "kind": kind, "workload": to_json(work.workload), "matrix": work.sha256}
    return depends_on | {"rows": work.matrix.rows, "columns": work.matrix.columns, "raysm": raysm.__version__}


def _record(work: _Run, kind: str) -> BlockRecord[Part]:
    return BlockRecord(work.folders.records, _depends_on(work, kind), encode=encode_part, decode=decode_part)


def _compute(
    work: _Run, function: Callable[[Context, Any], Any], blocks: Sequence[Any], total: int, **more: Any
) -> Iterator[tuple[Any, Part]]:
    """Map over the blocks and announce the progress, in rows; a block counts by its area, a part of ``total``."""
    rows = work.matrix.rows
    pace = Pace("similarity", rows, "rows", work.announce)
    done = total - sum(map(_area, blocks))
    record = more.get("record")
    work.blocks += len(blocks)
    work.blocks_found += 0 if record is None else sum(block in record for block in blocks)
    with work.phase("similarity"):
        for block, part in map_blocks(partial(measured, function, work.context), blocks, **more):
            work.took_part(part)
            yield block, part
            done += _area(block)
            pace.reach(rows * done // total)


def _top_k(work: _Run, k: int) -> tuple[ResultFile, ...]:
    rows = work.matrix.rows
    record = _record(work, "topk")
    blocks = row_blocks(rows, sizes.top_k_rows(work.workload, k, work.matrix, record))
    for _ in _compute(work, partial(_topk_arrays, k), blocks, rows, record=record):
        pass
    with _gathering(work) as pace:
        file = output.write_neighbors(work.folders.result, record, blocks, k, work.matrix, pace.add)
    record.remove()
    return (file,)


def _topk_arrays(k: int, context: Context, block: RowBlock) -> dict[str, NDArray[Any]]:
    return {"keys": topk.topk_block(context, k, block)}


def _threshold(work: _Run, least: np.float32) -> tuple[ResultFile, ...]:
    record = _record(work, "threshold")
    cuts = row_blocks(work.matrix.rows, sizes.side(work.workload, work.matrix, record))
    stripes = [[TileBlock(rows, columns) for columns in cuts[at:]] for at, rows in enumerate(cuts)]
    blocks = [tile for stripe in stripes for tile in stripe]
    for _ in _compute(work, partial(_threshold_arrays, least), blocks, sum(map(_area, blocks)), record=record):
        pass
    # A pair takes 8 bytes in a part and at most 20 in the table.
    check_room([(work.folders.result, 5 * record.size_bytes() // 2)])
    with _gathering(work) as pace:
        file = output.write_pairs(work.folders.result, record, stripes, pace.add)
    record.remove()
    return (file,)


def _threshold_arrays(least: np.float32, context: Context, block: TileBlock) -> dict[str, NDArray[Any]]:
    pairs = threshold.threshold_block(context, least, block)
    return {"offsets": pairs.offsets, "neighbors": pairs.neighbors, "similarities": pairs.similarities}


def _area(block: RowBlock | TileBlock) -> int:
    return block.rows if isinstance(block, RowBlock) else block.rows.rows * block.columns.rows


def _full(work: _Run) -> tuple[ResultFile, ...]:
    rows, dtype = work.matrix.rows, np.dtype(work.workload.dtype)
    record: BlockRecord[str] = BlockRecord(
        work.folders.records,
        _depends_on(work, "full"),
        encode=lambda digest: [digest.encode()],
        decode=lambda data: bytes(data).decode(),
    )
    cuts = row_blocks(rows, sizes.side(work.workload, work.matrix, record))
    tiles = [TileBlock(above, beside) for above in cuts for beside in cuts]
    array = ArrayFile(record.folder / "array", header((rows, rows), dtype), rows, rows, dtype)
    try:
        missing = [tile for tile in tiles if tile not in record or not array.holds(tile, record.load(tile))]
        work.blocks = work.blocks_found = len(tiles) - len(missing)
        for tile, part in _compute(work, partial(_full_arrays, dtype.name), missing, rows * rows):
            record.save(tile, array.write(tile, part.arrays["scores"]))
        with _gathering(work) as pace:
            array.close()
            target = work.folders.result / output.SIMILARITY
            move(array.path, target)
            file = ResultFile(
                name=target.name,
                shape=(rows, rows),
                bytes=target.stat().st_size,
                sha256=sha256_of(target),
                how_to_read=f'import numpy; scores = numpy.load("{target.name}", mmap_mode="r")',
            )
            pace.reach(rows)
    finally:
        with suppress(OSError):
            array.close()
    record.remove()
    return (file,)


def _full_arrays(dtype: Any, context: Context, block: TileBlock) -> dict[str, NDArray[Any]]:
    return {"scores": full.full_block(context, dtype, block)}


@contextmanager
def _gathering(work: _Run) -> Iterator[Pace]:
    work.announce(State(name="gathering"))
    work.folders.result.mkdir(parents=True, exist_ok=True)
    with work.phase("gathering"):
        yield Pace("gather", work.matrix.rows, "rows", work.announce)


def _manifest(work: _Run, job: str, files: tuple[ResultFile, ...]) -> Manifest:
    matrix = work.matrix
    described = {"sha256": work.sha256, "rows": matrix.rows, "columns": matrix.columns, "dtype": str(matrix.dtype)}
    manifest = Manifest(
        job=job,
        workload=to_json(work.workload),
        inputs={work.source.channel: described | {"files": len(matrix.names), "sparse": matrix.sparse}},
        files=files,
        versions={
            "raysm": raysm.__version__,
            "python": platform.python_version(),
            "ray": ray.__version__,
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
        instances=tuple(sorted(work.peaks)),
        phases_s=work.phases_s,
        measures={
            "peak_memory_bytes": float(max(work.peaks.values(), default=0)),
            "head_peak_memory_bytes": float(peak_memory_bytes()),
            "task_seconds": round(work.task_seconds, 3),
            "blocks": float(work.blocks),
            "blocks_found": float(work.blocks_found),
        },
    )
    manifest.write(work.folders.result)
    return manifest

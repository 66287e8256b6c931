"""Who is compared in ``similarity.py``, each in a process of its own that stays warm from one run to the next."""

import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tests.benchmarks import where_time_goes
from tests.benchmarks.blas import loaded_libraries, with_fastest

ROOT = Path(__file__).parents[2]
THREADS = 2
BLOCK_ROWS = 1024
PART_ROWS = 1 << 17
SAMPLE_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Job:
    """One problem."""

    kind: str
    """topk, threshold, full or gather."""
    path: Path
    """The matrix."""
    small: Path
    """The first rows of it, to get warm."""
    other: Path | None = None
    """Another matrix, that contenders with a ' *' in their name compute instead."""
    k: int = 10
    threshold: float = 0.0
    some: tuple[int, ...] = ()
    """Rows whose answers are compared with float64."""


def loaded(path):
    if path.suffix == ".npz":
        import scipy.sparse

        return scipy.sparse.load_npz(path)
    return np.load(path, mmap_mode="r")


def normalised(rows):
    rows = np.asarray(rows, dtype=np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return rows / np.maximum(norms, 1e-30)[:, None].astype(np.float32)


def without_self(found, k, first=0):
    kept = found != np.arange(first, first + len(found))[:, None]
    kept[kept.all(axis=1), -1] = False
    return found[kept].reshape(len(found), k)


def faiss_topk(matrix, job):
    import faiss

    faiss.omp_set_num_threads(THREADS)
    unit = normalised(matrix)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    return without_self(index.search(unit, job.k + 1)[1], job.k)


def sklearn_topk(matrix, job):
    from sklearn.neighbors import NearestNeighbors

    rows = np.asarray(matrix, dtype=np.float32)
    nearest = NearestNeighbors(
        n_neighbors=job.k, metric="cosine", algorithm="brute", n_jobs=THREADS
    ).fit(rows)
    return nearest.kneighbors(return_distance=False)


def numpy_rows(unit, k, start, stop):
    found = np.empty((stop - start, k), dtype=np.int64)
    for at in range(start, stop, BLOCK_ROWS):
        end = min(at + BLOCK_ROWS, stop)
        scores = unit[at:end] @ unit.T
        scores[np.arange(end - at), np.arange(at, end)] = -np.inf
        best = np.argpartition(scores, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        found[at - start : end - start] = np.take_along_axis(best, order, axis=1)
    return found


def numpy_threshold(matrix, job):
    """Blocked products of the upper triangle, with a filter; return how many pairs there are."""
    unit, pairs = normalised(matrix), []
    for at in range(0, len(unit), BLOCK_ROWS):
        scores = unit[at : at + BLOCK_ROWS] @ unit[at:].T
        row, column = np.nonzero(scores >= job.threshold)
        upper = row < column
        pairs.append((row[upper] + at, column[upper] + at, scores[row[upper], column[upper]]))
    return sum(len(row) for row, _, _ in pairs)


def disk_full(matrix, job):
    """Write as many bytes as the full matrix has."""
    _write_in_order(job.path.with_name("disk"), 4 * len(matrix) ** 2)


def disk_gather(matrix, job):
    """Write as many bytes as the gathered result has."""
    _write_in_order(job.path.with_name("disk"), _gathered(job))


def _write_in_order(path, size):
    piece = memoryview(np.random.default_rng(0).bytes(32 << 20))
    try:
        with path.open("wb", buffering=0) as file:
            for at in range(0, size, len(piece)):
                file.write(piece[: size - at])
            os.fsync(file.fileno())
    finally:
        path.unlink()


def _gathered(job):
    return job.path.with_name("gathered").joinpath("neighbors.parquet").stat().st_size


def usearch_topk(matrix, job):
    from usearch.index import search

    unit = normalised(matrix)
    found = np.empty((len(unit), job.k + 1), dtype=np.int64)
    # In blocks, because it holds all scores of a call.
    for at in range(0, len(unit), BLOCK_ROWS):
        some = unit[at : at + BLOCK_ROWS]
        matches = search(unit, some, job.k + 1, exact=True, threads=THREADS)
        found[at : at + len(some)] = matches.keys
    return without_self(found, job.k)


def _best_of_products(rows, k, product):
    """Return the neighbors of all rows, by ``product(start, stop)``: their scores with all rows, a tensor."""
    import torch

    torch.set_num_threads(THREADS)
    found = np.empty((rows, k + 1), dtype=np.int64)
    for start in range(0, rows, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, rows)
        found[start:stop] = torch.topk(product(start, stop), k + 1, dim=1).indices.numpy()
    return without_self(found, k)


def _as_int8(unit):
    """Return the rows as int8, and the scale of each."""
    scales = np.maximum(np.abs(unit).max(axis=1), 1e-30) / 127
    return np.rint(unit / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def torch_bfloat16_topk(matrix, job):
    import torch

    unit = torch.from_numpy(normalised(matrix)).to(torch.bfloat16)
    turned = unit.T.contiguous()
    return _best_of_products(len(unit), job.k, lambda start, stop: unit[start:stop] @ turned)


def torch_int8_topk(matrix, job):
    import torch

    small, scales = (torch.from_numpy(part) for part in _as_int8(normalised(matrix)))
    turned = small.T.contiguous()
    # The scale of a row changes no order among its own scores.
    return _best_of_products(
        len(small),
        job.k,
        lambda start, stop: torch._int_mm(small[start:stop], turned) * scales,
    )


def numkong_int8_topk(matrix, job):
    import numkong
    import torch

    small, scales = _as_int8(normalised(matrix))
    packed, scale = numkong.dots_pack(small), torch.from_numpy(scales)
    products = np.empty((BLOCK_ROWS, len(small)), dtype=np.int32)

    def product(start, stop):
        out = products[: stop - start]
        some = small[start:stop]
        step = -(-len(some) // THREADS)
        with ThreadPoolExecutor(THREADS) as pool:
            list(
                pool.map(
                    lambda at: numkong.dots_packed(
                        some[at : at + step], packed, out=numkong.from_dlpack(out[at : at + step])
                    ),
                    range(0, len(some), step),
                )
            )
        return torch.from_numpy(out) * scale

    return _best_of_products(len(small), job.k, product)


def _unit_csr(matrix):
    import scipy.sparse

    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel()
    return scipy.sparse.csr_matrix(
        scipy.sparse.diags((1 / np.maximum(norms, 1e-30)).astype(np.float32)) @ matrix
    )


def sparse_dot_topn_topk(matrix, job):
    from sparse_dot_topn import sp_matmul_topn

    unit = _unit_csr(matrix)
    best = sp_matmul_topn(unit, unit.T.tocsr(), top_n=job.k + 1, n_threads=THREADS, sort=True)
    found = np.full((matrix.shape[0], job.k + 1), -1)
    counts = np.diff(best.indptr)
    found[np.arange(job.k + 1) < counts[:, None]] = best.indices
    return without_self(found, job.k)


def scipy_topk(matrix, job):
    unit = _unit_csr(matrix)
    turned, found = unit.T.tocsr(), np.full((matrix.shape[0], job.k), -1)
    for at in range(0, matrix.shape[0], BLOCK_ROWS):
        scores = (unit[at : at + BLOCK_ROWS] @ turned).tocsr()
        for i in range(scores.shape[0]):
            begin, end = scores.indptr[i], scores.indptr[i + 1]
            values, columns = scores.data[begin:end].copy(), scores.indices[begin:end]
            values[columns == at + i] = -np.inf
            best = (
                np.argpartition(values, -job.k)[-job.k :]
                if len(values) > job.k
                else np.arange(len(values))
            )
            found[at + i, : len(best)] = columns[best[np.argsort(-values[best], kind="stable")]]
    return found


PEERS = {
    ("topk", "faiss"): faiss_topk,
    ("topk", "sklearn"): sklearn_topk,
    ("topk", "usearch"): usearch_topk,
    ("topk", "torch-bfloat16"): torch_bfloat16_topk,
    ("topk", "torch-int8"): torch_int8_topk,
    ("topk", "numkong-int8"): numkong_int8_topk,
    ("topk", "sparse_dot_topn"): sparse_dot_topn_topk,
    ("topk", "scipy"): scipy_topk,
    ("threshold", "numpy"): numpy_threshold,
    ("gather", "disk"): disk_gather,
    ("full", "disk"): disk_full,
}


DENSE = ("faiss", "sklearn", "numpy", "ray")
"""Peers whose time goes into float32 products of a BLAS library."""


PROFILED = "raysm profiled"


def connect(folder, **more):
    """Start a Ray of two CPUs, which has this checkout at hand."""
    os.environ.update(
        HOME=str(folder), PYTHONPATH=str(ROOT), RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"
    )
    import ray

    from raysm.core.protocol.names import LABEL_HOST

    ray.init(
        address="local",
        num_cpus=THREADS,
        include_dashboard=False,
        object_store_memory=512 << 20,
        labels={LABEL_HOST: "algo-1"},
        log_to_driver=False,
        _temp_dir=str(folder / "r"),
        **more,
    )
    return ray


def plain_ray(folder):
    """Two tasks over halves of the rows, as most would write it."""
    ray = connect(folder)
    task = ray.remote(num_cpus=1)(_half)

    def go(path, job):
        rows = len(loaded(path))
        halves = ray.get(
            [task.remote(str(path), job.k, at, at + -(-rows // 2)) for at in (0, -(-rows // 2))]
        )
        return {"answer": np.concatenate(halves)}

    return go


def _half(path, k, start, stop):
    unit = normalised(np.load(path, mmap_mode="r"))
    return numpy_rows(unit, k, start, min(stop, len(unit)))


def raysm_run(folder, engine, *, profiled=False):
    """The whole workload on a formed cluster: the computing time of its tasks, and the times of its phases beside."""
    if profiled:
        os.environ[where_time_goes.FOLDER] = str(folder)
        connect(folder, runtime_env={"worker_process_setup_hook": where_time_goes.HOOK})
    else:
        connect(folder)
    import pyarrow.parquet as pq

    from raysm.features.similarity.cluster.reading.matrix import Location, Source
    from raysm.features.similarity.cluster.run import Folders
    from raysm.features.similarity.request import Similarity
    from raysm.features.similarity.runner import run

    def go(path, job):
        work = Path(tempfile.mkdtemp(dir=path.parent))
        asked = {
            "topk": {"top_k": job.k},
            "threshold": {"threshold": job.threshold},
            "full": {"full": True},
        }
        spent = where_time_goes.total(folder)
        begin = time.perf_counter()
        try:
            manifest = run(
                Similarity(**asked[job.kind]),
                job="benchmark",
                source=Source(
                    channel="matrix", location=Location(path, work / "scratch", "algo-1")
                ),
                # As a training job has them: what is finished is kept for the next head, where that
                # is worth it.
                folders=Folders(result=work / "result", records=work / "records"),
                emit_event=lambda event: None,
                engine=engine,
            )
            whole_s = time.perf_counter() - begin
            phases = manifest.phases_s
            computing_s = phases["prepare"] + phases["similarity"]
            found = {
                "seconds": manifest.measures["task_seconds"] / THREADS,
                "beside": {"phases": phases, "whole_s": whole_s, "share": computing_s / whole_s},
                "engines": manifest.engines,
            }
            if profiled:
                now = where_time_goes.total(folder)
                found["spent"] = {part: now[part] - spent[part] for part in now}
            if job.kind == "topk":
                column = pq.read_table(work / "result" / "neighbors.parquet")[
                    "neighbors"
                ].combine_chunks()
                return found | {"answer": column.flatten().to_numpy().reshape(-1, job.k)}
            if job.kind == "threshold":
                return found | {"answer": manifest.files[0].shape[0]}
            # The file is the work: what counts is when it is there.
            return found | {"seconds": phases["similarity"] + phases["gathering"]}
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return go


def gathering_run(path, job):
    """Merge simulated parts of top-k, and write the result: what the head does, without tasks."""
    from raysm.features.similarity.cluster.arithmetic.keys import TopKAccumulator
    from raysm.features.similarity.cluster.modes.topk import write_neighbors
    from raysm.instance.work.row_blocks import RowBlock, row_blocks

    keys, target = np.load(path, mmap_mode="r"), path.with_name("gathered")
    rows, k = keys.shape
    target.mkdir(exist_ok=True)
    standing = TopKAccumulator(path.parent, rows, k)
    try:
        begin = time.perf_counter()
        for block in row_blocks(rows, PART_ROWS):
            part = np.array(keys[block.start : block.stop])
            standing.merge(block, np.full(len(part), k, dtype=np.uint32), part.ravel())
        merged = time.perf_counter()
        write_neighbors(target / "neighbors.parquet", RowBlock(0, rows), standing.read, k)
        written = time.perf_counter()
    finally:
        standing.close()
    return {"seconds": written - merged, "merge_s": merged - begin, "bytes": _gathered(job)}


def _prepare(name, job, folder):
    if name == "gathering":
        return gathering_run
    if name.startswith("raysm"):
        return raysm_run(
            folder, "float32" if "float32" in name else None, profiled=name == PROFILED
        )
    if name == "ray":
        return plain_ray(folder)
    function = PEERS[job.kind, name]
    matrices = {path: loaded(path) for path in (job.small, job.path)}
    return lambda path, job: {"answer": function(matrices[path], job)}


def _child(pipe, name, job):
    sys.path.insert(0, str(ROOT))
    # Short: Ray keeps sockets below it.
    folder = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
    path = job.other if name.endswith(" *") and job.other is not None else job.path
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            go = _prepare(name, job, folder)
            go(job.small, job)
        # Now all libraries are loaded.
        pipe.send(loaded_libraries(THREADS) if name in DENSE else [])
        while pipe.recv() == "go":
            begin = time.perf_counter()
            found = go(path, job)
            found = {"seconds": time.perf_counter() - begin} | found
            if isinstance(found.get("answer"), np.ndarray):
                found["answer"] = found["answer"][list(job.some)]
            pipe.send(found)
    finally:
        if name.split()[0] in ("raysm", "ray"):
            import ray

            ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


class Contender:
    """A warm process."""

    def __init__(self, name, job):
        # Ray gives its tasks the threads that they have; the others take both cores.
        threads = {} if name.split()[0] in ("raysm", "ray") else {"OMP_NUM_THREADS": str(THREADS)}
        before = dict(os.environ)
        # In the parent, because the libraries read them when the child imports this module.
        variables = with_fastest(before) | threads
        os.environ.clear()
        os.environ.update(variables)
        try:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_child, args=(theirs, name, job))
            self._process.start()
            theirs.close()
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.name = name
        self.runs = []
        self.peak_bytes = 0
        self.libraries = self._pipe.recv()
        self._before = self._anonymous()

    def go(self):
        """Run once; keep what it says, and the most memory beside mapped files that its processes held."""
        self._pipe.send("go")
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,))
        watcher.start()
        try:
            self.runs.append(self._pipe.recv())
        finally:
            over.set()
            watcher.join()
        return self.runs[-1]

    def _watch(self, over):
        while not over.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, self._anonymous() - self._before)

    def _anonymous(self):
        process = psutil.Process(self._process.pid)
        total = 0
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError, IndexError):
                status = Path(f"/proc/{one.pid}/status").read_text()
                total += int(status.split("RssAnon:")[1].split()[0]) << 10
        return total

    def end(self):
        """End the process."""
        with contextlib.suppress(OSError):
            self._pipe.send("end")
        self._process.join(60)

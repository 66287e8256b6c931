"""Sharded rows are compared on the GPUs of two and of three instances, to the last bit of float64.

The GPUs are numbers, and the engine of GPUs computes on the CPU in their place. It refuses to
compute in a task that did not ask Ray for a GPU.
"""

import hashlib
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.core.protocol.result import Manifest
from raysm.core.request import Cluster, Input
from raysm.features.similarity.request import Similarity
from tests.support.jobs import NOTICES_LOSS_SOON, completed, script_request
from tests.support.reference import neighbors, pairs, scores_between

pytestmark = [pytest.mark.namespace, pytest.mark.long]

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import ray
from raysm.core.protocol.events import Progress
from raysm.core.protocol.names import LABEL_HOST
from raysm.instance.log import emit_event
from raysm.features.similarity.request import Similarity
from raysm.features.similarity.cluster import owners
from raysm.features.similarity.cluster.reading.matrix import Source
from raysm.features.similarity.runner import run
from raysm.features.similarity.cluster.run import Folders


def compute_on_cpu_for_gpu():
    from raysm.features.similarity.cluster.engines import choice

    def engine(columns):
        import os
        from raysm.features.similarity.cluster.engines.cuda import CudaEngine

        assert os.environ["CUDA_VISIBLE_DEVICES"] in ("0", "1"), "this task asked for no GPU"
        return CudaEngine("cpu", columns, free_bytes=1 << 22)

    choice.gpu_engine = engine


ray.init(
    address="auto",
    log_to_driver=False,
    runtime_env={"worker_process_setup_hook": compute_on_cpu_for_gpu},
)
model, scratch = Path("/opt/ml/model"), Path("/opt/ml/scratch/records")


@ray.remote(num_cpus=0, max_retries=0)
def end_raylet():
    os.kill(os.getppid(), signal.SIGKILL)


class Killing:
    def __init__(self):
        self.at = None

    def __call__(self, event):
        emit_event(event)
        if self.at is None and isinstance(event, Progress) and event.phase == "similarity" and event.done:
            self.at = event.done / event.total
            # Meanwhile the head hands out nothing: much is left to do, however fast it is done.
            try:
                ray.get(end_raylet.options(label_selector={LABEL_HOST: "algo-2"}).remote())
            except ray.exceptions.RayError:
                pass


killed = {}
for name, matrix, queries, fields, engine, is_killed in json.loads(sys.argv[1]):
    emit = Killing() if is_killed else emit_event
    # As of a large result: the instances merge it, and the head reads and writes it.
    owners.HEAD_BYTES = 0 if name == "lost" else 1 << 20
    run(
        Similarity(**fields),
        job=name,
        source=Source(channel=matrix, sharded=True),
        queries=queries and Source(channel=queries, sharded=True),
        folders=Folders(result=model / name, records=scratch / name),
        emit_event=emit,
        engine=engine,
    )
    if is_killed:
        killed[name] = emit.at
(model / "killed.json").write_text(json.dumps(killed))
"""

WIDE = np.random.default_rng(3).standard_normal((700, 300)).astype(np.float32)
WIDE[::97] = 0
WIDE[140:160] = WIDE[20:40]

MATRICES = {
    "wide": np.split(WIDE, [20, 26, 320, 321, 640]),
    "asked": np.split(WIDE[5:180:3] * np.float32(3), [20, 21, 40]),
}
"""Files of unequal sizes, which the instances get in turns."""

CASES = {
    2: [
        ("top", "wide", None, {"top_k": 5, "block_rows": 70}, "cuda", False),
        ("lost", "wide", None, {"top_k": 5, "block_rows": 40}, "cuda", True),
        ("on CPUs", "wide", None, {"top_k": 5}, "float32", False),
    ],
    3: [
        ("pairs", "wide", None, {"threshold": 0.1, "block_rows": 100}, "cuda", False),
        ("queries", "wide", "asked", {"top_k": 6, "block_rows": 60}, "cuda", False),
        ("owned", "wide", None, {"top_k": 5, "block_rows": 40, "parts": 3}, "cuda", True),
    ],
}


def completed_job(folder, count):
    """Have so many instances compute the cases in turn; return the folder of the result."""
    inputs = {}
    for name, parts in MATRICES.items():
        (folder / name).mkdir()
        for number, part in enumerate(parts):
            np.save(folder / name / f"part-{number}.npy", part)
        inputs[name] = Input(str(folder / name), distribution="ShardedByS3Key")
    asked = script_request(
        folder,
        SCRIPT,
        args=(json.dumps(CASES[count]),),
        cluster=Cluster(count=count),
        inputs=inputs,
    )
    environment = Similarity.ray_variables | NOTICES_LOSS_SOON | {"CUDA_VISIBLE_DEVICES": "0"}
    outcome, log, model = completed(asked, folder / "job", environment=environment)
    assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
    return model


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return completed_job(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return completed_job(tmp_path_factory.mktemp("three"), 3)


def found_neighbors(job, case):
    manifest = Manifest.read(job / case)
    models = [host / "ml" / "model" / case for host in sorted(job.parents[2].glob("algo-*"))]
    # Each owner leaves its file in the folder of its instance; SageMaker brings them together.
    files = [
        next(model / file.name for model in models if (model / file.name).exists())
        for file in manifest.files
    ]
    tables = [pq.read_table(file) for file in files]
    return tuple(
        np.concatenate([np.array(table[name].to_pylist()) for table in tables])
        for name in ("neighbors", "similarities")
    )


def killed_at(job, case):
    return json.loads((job / "killed.json").read_text())[case]


def test_two_instances_find_on_gpus_the_neighbors_of_float64(two):
    (engine,) = Manifest.read(two / "top").engines
    assert engine.startswith("float16 CUDA")
    for found, expected in zip(found_neighbors(two, "top"), neighbors(WIDE, 5), strict=True):
        assert np.array_equal(found.astype(expected.dtype), expected)


def test_gpus_and_cpus_write_the_same_bytes_also_when_an_instance_is_lost_on_the_way(two):
    digests = {
        case: hashlib.sha256((two / case / "neighbors.parquet").read_bytes()).hexdigest()
        for case in ("top", "on CPUs", "lost")
    }
    assert len(set(digests.values())) == 1
    assert Manifest.read(two / "on CPUs").engines != Manifest.read(two / "lost").engines
    assert killed_at(two, "lost") < 0.5
    assert "the head writes one file" in Manifest.read(two / "lost").notes[0]


def test_three_instances_find_on_gpus_the_pairs_of_float64(three):
    columns = pq.read_table(three / "pairs" / "pairs.parquet").to_pydict().values()
    found = [(i, j, np.float32(score)) for i, j, score in zip(*columns, strict=True)]
    assert found == pairs(WIDE, np.float32(0.1))


def test_sharded_queries_find_on_gpus_the_neighbors_of_float64_in_a_sharded_matrix(three):
    numbers, scores = found_neighbors(three, "queries")
    expected = scores_between(np.concatenate(MATRICES["asked"]), WIDE)
    order = np.argsort(-expected.astype(np.float64), axis=1, kind="stable")[:, :6]
    assert np.array_equal(numbers, order)
    assert np.array_equal(scores.astype(np.float32), np.take_along_axis(expected, order, axis=1))


def test_the_rows_that_a_lost_owner_had_merged_are_computed_again_on_gpus(three):
    for found, expected in zip(found_neighbors(three, "owned"), neighbors(WIDE, 5), strict=True):
        assert np.array_equal(found.astype(expected.dtype), expected)
    assert killed_at(three, "owned") < 0.5

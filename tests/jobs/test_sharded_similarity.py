"""Rows that are spread over three instances give the result of rows that lie whole on each, and travel as counted."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from raysm.core.protocol.result import Manifest
from raysm.core.request import Cluster, Input
from raysm.features.similarity.cluster.rotation import MAX_LEAVING
from raysm.features.similarity.cluster.tasks import KEPT_BYTES
from raysm.features.similarity.request import Similarity
from tests.support.jobs import completed, script_request

pytestmark = [pytest.mark.namespace, pytest.mark.long]

ROWS, COLUMNS = 1200, 8192
"""Few rows of many columns: much memory, little to compute."""

CHUNK_ROWS = 50
"""Eight chunks come to each instance, and as many leave it: more than may be there at a time."""

CHUNK_BYTES = CHUNK_ROWS * COLUMNS * 4

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import ray
from raysm.core.protocol.events import Progress
from raysm.core.protocol.names import LABEL_HOST
from raysm.instance.log import emit_event
from raysm.instance.work.nodes import cluster_nodes
from raysm.features.similarity.request import Similarity
from raysm.features.similarity.cluster.reading.columns import Selection
from raysm.features.similarity.cluster.reading.matrix import Source
from raysm.features.similarity.cluster.tasks import peak_memory_bytes
from raysm.features.similarity.runner import run
from raysm.features.similarity.cluster.run import Folders

ray.init(address="auto", log_to_driver=False)
HOSTS = ["algo-1", "algo-2", "algo-3"]
model, scratch = Path("/opt/ml/model"), Path("/opt/ml/scratch/records")


@ray.remote(num_cpus=0)
def probe():
    import raysm.features.similarity.runner  # what every process of the work loads, for its peak
    lines = [line.split() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    shared = os.statvfs("/dev/shm")
    return {
        "sent": sum(int(line[9]) for line in lines if line[0] != "lo:"),
        "received": sum(int(line[1]) for line in lines if line[0] != "lo:"),
        "shared": (shared.f_blocks - shared.f_bfree) * shared.f_frsize,
        "peak": peak_memory_bytes(),
    }


@ray.remote(num_cpus=0, max_retries=0)
def end_raylet():
    os.kill(os.getppid(), signal.SIGKILL)


def on(host, task):
    return task.options(label_selector={LABEL_HOST: host}).remote()


def probes():
    return dict(zip(HOSTS, ray.get([on(host, probe) for host in HOSTS])))


class Killing:
    def __init__(self):
        self.at = None

    def __call__(self, event):
        emit_event(event)
        if self.at is None and isinstance(event, Progress) and event.phase == "similarity" and 0 < event.done:
            self.at = event.done, event.total
            # Meanwhile the head hands out nothing: much is left to do, however fast it is done.
            try:
                ray.get(on("algo-2", end_raylet))
            except ray.exceptions.RayError:
                pass


nodes = cluster_nodes()
found = {
    "slots": sum(node.cpus for node in nodes),
    "store_bytes": min(node.object_store_bytes for node in nodes),
}
def source(channel, sharded, fields):
    suffix = "-shards" * sharded
    selection = Selection((fields["id_column"],) if "id_column" in fields else ())
    return Source(channel=channel + suffix, selection=selection, sharded=sharded)


for name, channel, fields, told in json.loads(sys.argv[1]):
    # Queries that look into the same matrix: both are shared out, or the queries alone.
    queries = "asked" if "queries" in told else None
    for sharded in (True, False):  # in this order: a process keeps its largest peak
        if "only sharded" in told and not sharded:
            continue
        measured = name == "big"
        telling = Killing() if "killed" in told else emit_event
        before = measured and probes()
        run(
            # Of the whole matrix, blocks as it chooses them: the bytes are those of any.
            Similarity(**fields if sharded else fields | {"block_rows": None}),
            job=name,
            source=source(channel, sharded and "only queries" not in told, fields),
            queries=queries and source(queries, sharded, fields),
            folders=Folders(result=model / name / ("shards" if sharded else "whole"), records=scratch / name),
            emit_event=telling,
        )
        if measured:
            found[f"{name} {sharded}"] = {"before": before, "after": probes()}
        if "killed" in told:
            found[f"{name} killed at"] = telling.at
(model / "probes.json").write_text(json.dumps(found))
"""


def files(folder, suffix, shares):
    folder.mkdir()
    edges = np.cumsum([0, *(len(share) for share in shares)])
    for at, share in enumerate(shares):
        path = folder / f"part-{at + 8}{suffix}"
        if suffix == ".npy":
            np.save(path, share)
        elif suffix == ".npz":
            scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(share))
        else:
            names = pa.array([f"row {row}" for row in range(edges[at], edges[at + 1])])
            pq.write_table(
                pa.table({"name": names, **{f"c{i}": share[:, i] for i in range(share.shape[1])}}),
                path,
            )


CASES = [
    # The first one, because a process keeps its largest peak.
    ("big", "big", {"top_k": 5, "block_rows": CHUNK_ROWS}, ""),
    # Chunks of more than 100 KB: smaller ones Ray keeps with who asks for them, and no instance can
    # lose them.
    ("wide", "wide", {"top_k": 5}, ""),
    ("ids", "table", {"top_k": 3, "id_column": "name"}, ""),
    ("sparse", "sparse", {"top_k": 7}, ""),
    ("query pairs", "small", {"threshold": 0.4}, "only queries"),
    ("all queries", "small", {"full": True, "dtype": "float16"}, "queries"),
    # More parts than instances: each has a process of its own.
    ("owned ids", "table", {"top_k": 3, "id_column": "name", "parts": 4}, "only sharded"),
    ("owned wide", "wide", {"top_k": 5, "parts": 3, "block_rows": 75}, "killed, only sharded"),
    ("killed wide", "wide", {"top_k": 5, "block_rows": 75}, "killed, only sharded"),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Have a job of three instances compute the cases, one after the other; return the folder of its result."""
    folder = tmp_path_factory.mktemp("sharded")
    rng = np.random.default_rng(3)
    big = rng.random((ROWS, COLUMNS), dtype=np.float32) - np.float32(0.5)
    files(folder / "big", ".npy", np.split(big, [75, 150, 400, 475, 800, 875]))
    wide = rng.standard_normal((900, 512)).astype(np.float32)
    files(folder / "wide", ".npy", np.split(wide, [200, 450, 451, 700]))
    # Two files with ids for three instances: one has none.
    files(folder / "table", ".parquet", np.split(rng.standard_normal((200, 6)), [120]))
    small = rng.standard_normal((300, 48)).astype(np.float32)
    small[::97] = 0
    small[140:160] = small[20:40]
    files(folder / "small", ".npy", np.split(small, [20, 26, 120, 121, 240]))
    # So few elements that rows are compared by those that they share.
    elements = rng.standard_normal((200, 900)) * (rng.random((200, 900)) < 0.01)
    files(folder / "sparse", ".npz", np.split(elements.astype(np.float32), [80, 160, 180]))
    files(folder / "asked", ".npy", np.split(small[5:180:3] * np.float32(3), [20, 21, 40]))
    inputs = {}
    for name in ("big", "wide", "table", "small", "sparse", "asked"):
        inputs[name] = Input(str(folder / name))
        inputs[f"{name}-shards"] = Input(str(folder / name), distribution="ShardedByS3Key")
    request = script_request(
        folder, SCRIPT, args=(json.dumps(CASES),), cluster=Cluster(count=3), inputs=inputs
    )
    # As a job of the similarity is told.
    environment = Similarity.ray_variables | {
        # What nobody needs any more is freed at once, not once a second.
        "RAY_free_objects_period_milliseconds": "0",
        # A raylet that ended is missed after five looks: a second, and not fifteen of a cluster
        # that waits.
        "RAY_health_check_period_ms": "200",
    }
    outcome, log, model = completed(request, folder / "job", environment=environment)
    assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
    return model


def digests(folder):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.name != "manifest.json"
    }


def test_the_result_of_shards_is_that_of_the_whole_matrix_byte_for_byte(job):
    for case in ("ids", "sparse", "query pairs", "all queries"):
        found = digests(job / case / "shards")
        assert found, case
        assert found == digests(job / case / "whole"), case
        whole, shards = Manifest.read(job / case / "whole"), Manifest.read(job / case / "shards")
        assert list(shards.inputs.values()) == list(whole.inputs.values())
    assert Manifest.read(job / "sparse" / "shards").engines == ("float32 sparse",)


def assert_content_of_whole_matrix(job, case):
    manifest = Manifest.read(job / case / "shards")
    # Each instance leaves the files of its rows in its own folder; SageMaker brings them together.
    models = [
        job.parents[2] / host / "ml" / "model" / case / "shards"
        for host in ("algo-1", "algo-2", "algo-3")
    ]
    found = {path.name: path for model in models for path in model.glob("*/part-*")}
    names = [Path(file.name).name for file in manifest.files]
    assert len(found) == len(names) > 1
    whole = pq.read_table(job / case.removeprefix("owned ") / "whole" / "neighbors.parquet")
    assert pa.concat_tables([pq.read_table(found[name]) for name in names]) == whole


def test_an_instance_whose_ray_node_dies_on_the_way_leaves_no_trace_in_the_result(job):
    assert digests(job / "killed wide" / "shards") == digests(job / "wide" / "whole")
    assert digests(job / "wide" / "shards") == digests(job / "wide" / "whole")
    assert_content_of_whole_matrix(job, "owned wide")
    assert_content_of_whole_matrix(job, "owned ids")
    for case in ("killed wide", "owned wide"):
        done, total = json.loads((job / "probes.json").read_text())[f"{case} killed at"]
        assert done < total / 2


def test_each_instance_sends_the_bytes_of_the_half_ring_and_no_more(job):
    # The files are so that each instance has a third of the rows; each transfers one of the others.
    model = dict.fromkeys(("algo-1", "algo-2", "algo-3"), ROWS // 3 * COLUMNS * 4)
    measures = Manifest.read(job / "big" / "shards").measures
    assert {host: measures[f"sent_bytes_{host}"] for host in model} == model
    seen = json.loads((job / "probes.json").read_text())["big True"]
    for host, expected in model.items():
        sent = seen["after"][host]["sent"] - seen["before"][host]["sent"]
        # Beside the rows: TCP's own bytes, the results, and what Ray's processes say to each other.
        print(host, "model", expected, "sent", sent, "shared", seen["after"][host]["shared"])
        assert expected <= sent <= 1.1 * expected + 8e6


def test_an_instance_holds_its_share_and_a_few_parcels(job):
    matrix = ROWS * COLUMNS * 4
    whole, shards = (
        Manifest.read(job / "big" / name).measures["peak_memory_bytes"]
        for name in ("whole", "shards")
    )
    print(
        f"a task's peak: {whole / 1e6:.0f} MB of a matrix of {matrix / 1e6:.0f} MB, {shards / 1e6:.0f} MB of shards"
    )
    seen = json.loads((job / "probes.json").read_text())
    before, after = (seen["big True"][when] for when in ("before", "after"))
    worker = max(host["peak"] for host in before.values())
    print(f"of which a worker takes {worker / 1e6:.0f} MB before its first task of the work")
    # Half of the smallest store has room for what comes to an instance and leaves it.
    room = int(seen["store_bytes"] / 2 / (1 + MAX_LEAVING) / CHUNK_BYTES)
    window = max(2, min(max(3, 2 * seen["slots"] // 3), room))
    assert shards <= 1.2 * (worker + matrix / 3 + window * CHUNK_BYTES + KEPT_BYTES)
    # What is freed the store uses again, and keeps: it shows the most that ever was there at once.
    # Beside the chunks, what Ray keeps of each object, and the norms of all rows: less than one
    # chunk more.
    most = (1 + MAX_LEAVING) * window * CHUNK_BYTES + 2e6
    for host in ("algo-1", "algo-2", "algo-3"):
        held = after[host]["shared"] - before[host]["shared"]
        print(
            f"{host}: {held / CHUNK_BYTES:.1f} chunks, of {(1 + MAX_LEAVING) * window} with windows of {window}"
        )
        assert held <= most

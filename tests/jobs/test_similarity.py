"""The main job, end to end: a real matrix becomes one result on the head."""

import contextlib
import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.core.protocol.events import Progress, parse
from raysm.core.protocol.result import Manifest
from raysm.core.request import Cluster, Input, InstanceGroup, JobRequest
from raysm.features.similarity.request import Similarity
from tests.support.jobs import ENDS_S, NOTICES_LOSS_SOON, completed, started
from tests.support.leftovers import leaving_nothing

# The plain run has the README's first command, in cli/test_main.
pytestmark = pytest.mark.long

DIGITS = Path(__file__).parents[2] / "examples" / "data" / "digits.csv.gz"


def similarity(folder, matrix, cluster, kind, **fields):
    request = JobRequest(
        name="similarity",
        workload=Similarity(**fields),
        cluster=cluster,
        inputs={"matrix": Input(str(matrix))},
    )
    with leaving_nothing(folder):
        outcome, log, model = completed(request, folder, kind)
    assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
    return log, model


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def digits_by_process(tmp_path_factory):
    return similarity(
        tmp_path_factory.mktemp("process"), DIGITS, Cluster(count=2), "process", top_k=10
    )


def test_one_instance_under_a_head_that_only_coordinates_leaves_the_same_bytes_as_two(
    tmp_path, digits_by_process
):
    groups = [InstanceGroup("work", "ml.c5.xlarge", 1), InstanceGroup("head", "ml.m5.large", 1)]
    cluster = Cluster(groups=groups, head="head", coordinator_only=True)
    _, model = similarity(tmp_path, DIGITS, cluster, "process", top_k=10, block_rows=100)
    assert Manifest.read(model).instances == ("algo-1",)
    assert model == tmp_path / "algo-2" / "ml" / "model"
    assert digest(model / "neighbors.parquet") == digest(digits_by_process[1] / "neighbors.parquet")


@pytest.mark.namespace
def test_rows_that_a_lost_instance_owned_are_merged_and_written_by_another(
    tmp_path, digits_by_process
):
    with without_algo_3(Similarity(top_k=10, block_rows=32, parts=3), tmp_path / "job") as (
        job,
        log,
    ):
        manifest = Manifest.read(job.model_dir)
        names = [f"neighbors/part-{at:05d}-of-00003.parquet" for at in range(3)]
        assert [file.name for file in manifest.files] == names
        # Each instance that is left has the files of the rows that it owns; the service brings them
        # together.
        models = [tmp_path / "job" / host / "ml" / "model" for host in ("algo-1", "algo-2")]
        tables = {
            path.name: pq.read_table(path)
            for model in models
            for path in (model / "neighbors").glob("*.parquet")
        }
        assert sorted(f"neighbors/{name}" for name in tables) == names
        table = pa.concat_tables(tables[name] for name in sorted(tables))
        assert table == pq.read_table(digits_by_process[1] / "neighbors.parquet")


@contextlib.contextmanager
def without_algo_3(workload, folder):
    """Run the block with the completed job of three instances, of which the last was killed amid its tiles."""
    cluster = Cluster(count=3, on_instance_loss="continue")
    request = JobRequest(
        name="lost", workload=workload, cluster=cluster, inputs={"matrix": Input(str(DIGITS))}
    )
    with started(request, folder, environment=NOTICES_LOSS_SOON) as (job, log):
        log.wait_for(lambda host, line: is_under_way(line))
        job.kill("algo-3")
        outcome = job.wait(timeout_s=ENDS_S)
        assert outcome.status == "Completed", f"{outcome.failure_reason}\n{log.text()}"
        yield job, log


def is_under_way(line):
    event = parse(line)
    return (
        isinstance(event, Progress) and event.phase == "similarity" and 0 < event.done < event.total
    )

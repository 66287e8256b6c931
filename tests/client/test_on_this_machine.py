"""The client with the real embedded SageMaker and real Ray: one server, few jobs, because each forms a cluster."""

import importlib
import re

import pytest

import raysm
from raysm.client.job.handle import attach
from raysm.client.storage.s3 import file_path
from raysm.client.submit import submit
from raysm.request import Cluster, Limits, Local, Script
from tests.support.homes import end, serving

pytestmark = pytest.mark.long

WAIT_S = 300


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home")) as home:
        yield Local(home=str(home), instance_kind="process")


MODULE = """
def hosts_of(tag):
    import ray
    from late_import import times

    asked = [ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(task).remote(index) for index in range(2)]
    return tag, len([node for node in ray.nodes() if node["Alive"]]), times(ray.get(asked))

def task(index):
    import late_import

    return late_import.VALUE
"""


COUNTS = """
import os, pathlib, time
done = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"], "checkpoints", "done.txt")
seen = done.read_text() if done.exists() else ""
done.parent.mkdir(exist_ok=True)
done.write_text(seen + "x")
print("run", len(seen) + 1, flush=True)
out = pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"])
out.mkdir(parents=True, exist_ok=True)
(out / "count.txt").write_text(seen + "x")
time.sleep(600 if not seen else 0)
"""


@pytest.fixture(scope="module")
def hosts_of(target, tmp_path_factory):
    """A function of a module with another one beside it, which runs on two instances unless it has done so before."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "own_hosts.py").write_text(MODULE)
    (folder / "late_import.py").write_text("VALUE = 3\ndef times(values):\n    return len(values) * VALUE\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        function = importlib.import_module("own_hosts").hosts_of
        yield raysm.remote(cluster=Cluster(count=2), on=target, if_done="skip")(function)


def test_a_function_and_its_tasks_on_a_cluster_of_two_find_the_modules_beside_it(target, hosts_of):
    job = hosts_of.submit("a")
    assert job.result(WAIT_S) == ("a", 2, 6)
    assert {"algo-1", "algo-2"} <= {line.host for line in job.lines()}
    assert attach(job.name, target).result() == ("a", 2, 6)


def test_a_server_that_ended_is_started_again_when_its_jobs_are_asked_for(target, hosts_of):
    job = hosts_of.submit("a")
    job.wait(WAIT_S)
    end(job.service.home)
    found = attach(job.name, target)
    assert found.status == "Completed"
    assert {"algo-1", "algo-2"} <= {line.host for line in found.lines()}
    assert hosts_of.submit("a") == job


# Without Ray: the follow-up is client/test_chain's, the stop and the checkpoints are local/server/test_life_cycle's.
def test_a_job_that_runs_too_long_goes_on_from_its_checkpoints(target, tmp_path):
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    # On a slow machine a run may be over before the script begins; the next one begins it then.
    limits = Limits(max_runtime_s=20, max_restarts=4)
    job = submit(Script(str(script)), on=target, limits=limits, grace_s=1)
    first = job.name
    job.wait(WAIT_S)
    assert job.status == "Completed"
    assert re.fullmatch(rf"{first}-r[1-4]", job.name)
    assert "run 2" in [line.text for line in job.lines()]
    assert file_path(f"{job.outputs}/data/count.txt").read_text() == "xx"

"""The client with the real embedded SageMaker and real Ray: one server, few jobs, because each forms a cluster."""

import importlib

import pytest

import raysm
from raysm.client.job.handle import attach
from raysm.request import Cluster, Local
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

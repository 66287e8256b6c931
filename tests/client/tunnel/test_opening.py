"""Who can be let in, and where: said before anything is opened."""

import subprocess
import sys

import pytest

from raysm.client.submit import submit
from raysm.client.tunnel.opening import let_in, open_tunnel
from raysm.errors import InvalidRequest, ServiceError
from raysm.request import Cluster, InstanceGroup, Script, Security
from tests.support.client_jobs import M5
from tests.support.sagemaker import refusal


def running(remote, job, status="Training"):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = status
    return job


def test_the_head_is_the_first_instance(remote, job):
    assert let_in(running(remote, job).chain, None) == f"sagemaker-training-job:{job.name}_algo-1"


def test_another_instance_is_named(remote, script):
    job = submit(Script(str(script)), cluster=Cluster("ml.m5.large", count=3), on=remote.service)
    assert let_in(running(remote, job).chain, "algo-3").endswith("_algo-3")
    for host in ("algo-4", "algo-0", "head", "3"):
        with pytest.raises(InvalidRequest, match=f"there is no instance {host!r}: {job.name} has algo-1 to algo-3"):
            let_in(job.chain, host)


def test_of_instance_groups_nobody_tells_which_has_the_head(remote, script):
    groups = [InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.m5.large", 1)]
    job = submit(Script(str(script)), cluster=Cluster(groups=groups), on=remote.service)
    with pytest.raises(InvalidRequest, match="has instance groups: name the instance"):
        let_in(running(remote, job).chain, None)
    assert let_in(job.chain, "algo-2").endswith("_algo-2")


def test_a_job_that_lets_nobody_in_is_opened_and_it_is_said(remote, job, caplog):
    let_in(running(remote, job).chain, None)
    assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert [record.message for record in caplog.records if "lets in" in record.message] == [
        f"{job.name} lets in who may start SSM sessions from now on (raysm debug --off ends that)"
    ]


def test_a_job_that_lets_in_is_left_as_it_is(remote, script):
    job = submit(Script(str(script)), cluster=M5, on=remote.service, security=Security(remote_debug=True))
    assert let_in(running(remote, job).chain, None)
    assert "sagemaker:UpdateTrainingJob" not in remote.operations()


@pytest.mark.parametrize("status", ["Starting", "Downloading", "Uploading", "Stopping"])
def test_before_and_after_the_training_nobody_gets_in(remote, job, status):
    with pytest.raises(InvalidRequest, match=rf"is {status}: it can be entered while it is Training"):
        let_in(running(remote, job, status).chain, None)


def test_a_processing_job_and_an_isolated_one_let_nobody_in(remote, script):
    processing = submit(Script(str(script)), cluster=M5, on=remote.service, kind="processing")
    with pytest.raises(InvalidRequest, match="a Processing job, into which SageMaker lets nobody"):
        open_tunnel(processing.chain, 80)
    isolated = submit(Script(str(script)), cluster=M5, on=remote.service, security=Security(isolation=True))
    with pytest.raises(InvalidRequest, match="no network"):
        open_tunnel(running(remote, isolated).chain, 80)


def test_an_account_that_lets_nobody_in_is_told_of(remote, job):
    remote.fail("update_training_job", refusal("AccessDeniedException", "not authorized"))
    with pytest.raises(ServiceError, match="EnableRemoteDebug"):
        open_tunnel(running(remote, job).chain, 80)


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ({"port": 0}, "port must be a number from 1 to 65535, got 0"),
        ({"port": 70000}, "got 70000"),
        ({"port": "http"}, "port must be a number from 1 to 65535, got 'http'"),
        ({"port": 1, "local_port": -1}, "local_port must be a number from 0"),
    ],
)
def test_a_port_that_cannot_be_is_said(job, ports, said):
    with pytest.raises(InvalidRequest, match=said):
        open_tunnel(job.chain, **ports)


WITHOUT_AIOHTTP = """
import sys
sys.modules["aiohttp"] = None  # as where it is not installed
from raysm.client.tunnel.opening import let_in
from raysm.errors import MissingDependency
try:
    let_in(None, None)
except MissingDependency as error:
    print(error)
"""


def test_without_aiohttp_it_says_what_to_install_before_a_job_is_opened_for_anybody():
    done = subprocess.run([sys.executable, "-c", WITHOUT_AIOHTTP], capture_output=True, text=True, timeout=60)
    assert done.stdout == "a tunnel needs aiohttp: python3 -m pip install 'raysm[interactive]'\n", done.stderr

"""A job's metrics mirrored by its head into a real MLflow server, and by AWS's own plugin into SageMaker's."""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import raysm
from raysm.client.endpoint import ensure
from raysm.contract.events import Metric, parse
from tests.support.api_requests import ROLE
from tests.support.bootstraps import Cluster, request
from tests.support.strangers import asked_by_another_user, needs_two_users

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

WITHIN_S = 240


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url):
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
        return answer.status == 200
    return False


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an MLflow server on loopback."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            url, deadline_s = f"http://127.0.0.1:{port}", time.monotonic() + WITHIN_S
            while not answers(url):
                assert process.poll() is None, (folder / "log").read_text()[-3000:]
                assert time.monotonic() < deadline_s, (folder / "log").read_text()[-3000:]
                time.sleep(0.2)
            yield url
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def only_run(url, experiment, job):
    client = mlflow.MlflowClient(url)
    runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id], f"tags.`raysm.job` = '{job}'")
    (run,) = runs
    return client, run


DRIVER = """
import raysm
for step in range(20):
    raysm.report(step=step, loss=0.5 / (step + 1), accuracy=step / 20)
"""


def tracked(tmp_path, tracking):
    """Run a job of one instance, with stand-ins for Ray, whose metrics the head mirrors; return its log."""
    job = dataclasses.replace(request(1), hyperparameters={"lr": "0.1"}, project="digits", tracking=tracking)
    with Cluster(tmp_path, job, driver=DRIVER, runner=True) as cluster:
        assert cluster.start().wait(WITHIN_S) == {"algo-1": 0}, cluster.log("algo-1")
        return cluster.lines["algo-1"]


def test_the_run_that_the_head_writes_is_what_the_job_has_logged(server, tmp_path):
    lines = tracked(tmp_path, server)
    client, run = only_run(server, "digits", "a-job")
    assert (run.info.run_name, run.info.status, run.data.params) == ("a-job", "FINISHED", {"lr": "0.1"})
    logged = [event for event in map(parse, lines) if isinstance(event, Metric) and not event.host]
    assert len(logged) == 40
    for name in ("loss", "accuracy"):
        points = client.get_metric_history(run.info.run_id, name)
        assert sorted((point.step, point.timestamp, point.value) for point in points) == [
            (one.step, int(one.time_s * 1000), one.value) for one in logged if one.name == name
        ]


SCRIPT = """
import ray, raysm
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
def loss(step):
    return 1 / (step + 1)

for step in range(10):
    raysm.report(step=step, loss=ray.get(loss.remote(step)))
"""


def test_a_job_of_two_instances_has_its_run_as_soon_as_its_result_is_there(server, home, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    job = raysm.submit(
        raysm.Script(str(tmp_path / "train.py"), args=["--lr", "0.1"]),
        # In a namespace of its own the head would not find a server of this machine's loopback.
        on=raysm.Local(instance_kind="process"),
        cluster=raysm.Cluster(count=2),
        project="digits",
        tracking=server,
    )
    job.result()
    client, run = only_run(server, "digits", job.name)
    assert (run.info.status, run.data.params) == ("FINISHED", {"lr": "0.1"})
    logged = [(event.step, event.value) for event in job.events() if isinstance(event, Metric) and event.name == "loss"]
    points = client.get_metric_history(run.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in points) == sorted(logged)
    assert len(logged) == 10


def test_a_server_that_is_not_there_fails_no_job_and_is_said_once(tmp_path):
    lines = tracked(tmp_path, f"http://127.0.0.1:{free_port()}")
    assert sum("metrics cannot be mirrored to http://127.0.0.1" in line for line in lines) == 1
    assert sum(isinstance(parse(line), Metric) for line in lines) >= 40


@pytest.fixture(scope="module")
def arn(home):
    """The ARN of a tracking server of the embedded SageMaker's own."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    sagemaker = boto3.client("sagemaker", endpoint_url=ensure(home), region_name="us-east-1", **keys)
    made = sagemaker.create_mlflow_tracking_server(
        TrackingServerName="team", ArtifactStoreUri="s3://bucket/artifacts", RoleArn=ROLE
    )
    yield made["TrackingServerArn"]
    sagemaker.delete_mlflow_tracking_server(TrackingServerName="team")


@pytest.fixture
def plugin(arn, home, monkeypatch):
    """AWS's plugin in this process, told of the embedded service as it is told of any endpoint."""
    monkeypatch.setenv("SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT", ensure(home))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(arn)
    yield
    mlflow.set_tracking_uri(before)


@pytest.mark.parametrize("kind", ["process", pytest.param("namespace", marks=pytest.mark.namespace)])
def test_awss_own_plugin_writes_from_a_job_to_an_arn_of_the_embedded_service(arn, plugin, tmp_path, kind):
    (tmp_path / "train.py").write_text(SCRIPT)
    job = raysm.submit(
        raysm.Script(str(tmp_path / "train.py"), args=["--lr", "0.1"]),
        on=raysm.Local(instance_kind=kind),
        cluster=raysm.Cluster(count=2),
        project="managed",
        tracking=arn,
    )
    job.result()
    assert job.describe().answer["MlflowConfig"]["MlflowResourceArn"] == arn
    client, run = only_run(arn, "managed", job.name)
    assert (run.info.run_name, run.info.status, run.data.params) == (job.name, "FINISHED", {"lr": "0.1"})
    logged = [event for event in job.events() if isinstance(event, Metric) and not event.host]
    assert {event.name for event in logged} == set(run.data.metrics)
    assert len(logged) >= 10
    for name in run.data.metrics:
        points = client.get_metric_history(run.info.run_id, name)
        assert sorted((point.timestamp, point.value) for point in points) == sorted(
            (int(one.time_s * 1000), one.value) for one in logged if one.name == name
        )


@needs_two_users
def test_another_user_of_this_machine_gets_nothing_however_he_signs(arn, home):
    url, path = urlsplit(ensure(home)), "/api/2.0/mlflow/experiments/get-by-name?experiment_name=managed"
    request = AWSRequest("GET", f"http://{url.netloc}{path}", headers={"x-mlflow-sm-tracking-server-arn": arn})
    SigV4Auth(Credentials("test", "test"), "sagemaker-mlflow", "us-east-1").add_auth(request)
    ((status, said),), _ = asked_by_another_user(url.port, ["GET", path, dict(request.headers)])
    assert (status, "answers only its own user" in said) == (403, True)


def test_an_arn_of_nobody_is_told_before_a_job_is_sent(arn, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    before = [job.name for job in raysm.jobs(project="managed")]
    nobodys = arn.replace("team", "taem")
    with pytest.raises(raysm.RaysmError, match=f"there is no tracking server {nobodys} here; there are: {arn}") as told:
        raysm.submit(raysm.Script(str(tmp_path / "train.py")), on=raysm.Local(), project="managed", tracking=nobodys)
    assert len(str(told.value).splitlines()) == 1
    assert [job.name for job in raysm.jobs(project="managed")] == before

"""A job's metrics mirrored by its head into a real MLflow server."""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import raysm
from raysm.core.protocol.events import Metric, parse
from raysm.features.experiments.ui_command import SETTINGS
from tests.support.bootstraps import Cluster, request

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = pytest.mark.filterwarnings("default")

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
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder),
    ]
    with (folder / "log").open("w") as log:
        environment = os.environ | SETTINGS
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
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
    runs = client.search_runs(
        [client.get_experiment_by_name(experiment).experiment_id], f"tags.`raysm.job` = '{job}'"
    )
    (run,) = runs
    return client, run


DRIVER = """
import raysm
for step in range(20):
    raysm.report(step=step, loss=0.5 / (step + 1), accuracy=step / 20)
"""


def tracked(tmp_path, tracking):
    """Run a job of one instance, with stand-ins for Ray, whose metrics the head mirrors; return its log."""
    job = dataclasses.replace(
        request(1), hyperparameters={"lr": "0.1"}, project="digits", tracking=tracking
    )
    with Cluster(tmp_path, job, driver=DRIVER, runner=True) as cluster:
        assert cluster.start().wait(WITHIN_S) == {"algo-1": 0}, cluster.log("algo-1")
        return cluster.lines["algo-1"]


SCRIPT = """
import ray, raysm
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
def loss(step):
    return 1 / (step + 1)

for step in range(10):
    raysm.report(step=step, loss=ray.get(loss.remote(step)), accuracy=step / 10)
"""


@pytest.mark.long
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
    assert (run.info.run_name, run.info.status, run.data.params) == (
        job.name,
        "FINISHED",
        {"lr": "0.1"},
    )
    logged = [event for event in job.events() if isinstance(event, Metric) and not event.host]
    assert len(logged) == 20
    for name in ("loss", "accuracy"):
        points = client.get_metric_history(run.info.run_id, name)
        assert sorted((point.step, point.timestamp, point.value) for point in points) == [
            (one.step, int(one.time_s * 1000), one.value) for one in logged if one.name == name
        ]


# What is said of a place that is down is held by features/experiments/test_mirror; here the end of a
# job waits its full time for the server.
@pytest.mark.soak
def test_a_server_that_is_not_there_fails_no_job_and_is_said_once(tmp_path):
    lines = tracked(tmp_path, f"http://127.0.0.1:{free_port()}")
    assert sum("metrics cannot be mirrored to http://127.0.0.1" in line for line in lines) == 1
    assert sum(isinstance(parse(line), Metric) for line in lines) >= 40

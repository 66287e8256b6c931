"""Metrics mirrored into a real MLflow server by AWS's own plugin, as the head does it for an ARN."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

WITHIN_S = 240
ARN = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"


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


MIRRORING = f"""
from raysm.contract.events import Metric
from raysm.contract.mirror import MlflowRun, Mirror
mirror = Mirror(MlflowRun(uri={ARN!r}, experiment="managed", job="digits-1", parameters={{"lr": 0.1}}), say=print)
for step in range(5):
    mirror.add(Metric(name="loss", value=1 / (step + 1), step=step))
assert mirror.close("FINISHED", {WITHIN_S})
"""


def test_awss_own_plugin_writes_to_an_arn(server):
    # The plugin's own variable: it signs its calls, and this server takes them without looking.
    environment = os.environ | {
        "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    ended = subprocess.run(
        [sys.executable, "-c", MIRRORING], env=environment, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]
    client, run = only_run(server, "managed", "digits-1")
    assert (run.info.status, run.data.params) == ("FINISHED", {"lr": "0.1"})
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 5

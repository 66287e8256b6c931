"""The server as a process: its start and end, what survives it, and whom it answers."""

import io
import resource
import signal
import socket
import subprocess
import sys

import pytest

from raysm.core.protocol.home import ServerRecord
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import (
    BUCKET,
    SOON_S,
    Server,
    channel,
    instances_of,
    statuses,
    until,
)

OPTIONS = ("--instance-kind", "process", "--cores", "4", "--stop-grace-s", "2")
FOREVER = "echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def start(tmp_path):
    """Start servers of one home; they are gone at the end, with all that they started."""
    started = []

    def run(*arguments):
        started.append(Server(tmp_path / "home", *OPTIONS, *arguments))
        return started[-1]

    yield run
    for server in started:
        server.kill()
    for server in started:
        assert_nothing_left(tmp_path / "home", server.process.pid)


def test_after_kill_9_instances_are_gone_and_the_next_server_says_what_happened(start, tmp_path):
    first = start()
    first.make_bucket()
    first.train("before", "echo kept; exit 0")
    first.ended("before")
    first.train("lost", FOREVER, count=2)
    until(lambda: len(first.lines("lost")) == 2)
    assert instances_of(tmp_path / "home")
    first.kill()
    until(lambda: not instances_of(tmp_path / "home"))
    assert ServerRecord.read(tmp_path / "home").pid == first.process.pid
    second = start()
    job = second.describe("lost")
    assert (job["TrainingJobStatus"], statuses(job)[-1]) == ("Failed", "Failed")
    assert "was killed" in job["FailureReason"]
    assert not (tmp_path / "home/jobs/training/lost/work").exists()
    assert second.describe("before")["TrainingJobStatus"] == "Completed"
    assert [text for _, text in second.lines("before")] == ["kept"]
    assert [text for _, text in second.lines("lost")] == ["ready", "ready"]
    with pytest.raises(second.sm.exceptions.ResourceInUse):
        second.train("before", "exit 0")
    second.make_bucket()
    second.train("after", "exit 0")
    assert second.ended("after")["TrainingJobStatus"] == "Completed"
    second.end()


def test_a_job_that_completed_on_a_full_disk_is_completed_for_the_next_server(start, tmp_path):
    first = start()
    first.make_bucket()
    output = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    script = f"echo ready; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    first.train("full", script, OutputDataConfig=output)
    first.says("full", "ready")
    # No file of this server may have more than a byte: its disk is full.
    _, hard = resource.prlimit(
        first.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY)
    )
    (tmp_path / "go").touch()
    assert first.ended("full")["TrainingJobStatus"] == "Completed"
    resource.prlimit(first.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    until(lambda: "training job full, which a full disk had refused, is written now" in first.log())
    first.kill()
    assert start().describe("full")["TrainingJobStatus"] == "Completed"


def test_a_server_that_is_told_to_end_ends_its_jobs(start, tmp_path):
    first = start()
    first.train("running", FOREVER)
    first.says("running", "ready")
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(SOON_S) == 0
    assert instances_of(tmp_path / "home") == []
    second = start()
    assert "was shut down" in second.describe("running")["FailureReason"]
    second.end()


def test_what_lies_in_s3_is_there_again_after_a_planned_end(start):
    first = start()
    first.make_bucket()
    first.s3.create_bucket(Bucket="raysm-local")
    first.s3.put_object(Bucket="raysm-local", Key="payload", Body=b"x")
    first.s3.put_object(Bucket=BUCKET, Key="model", Body=b"weights", Metadata={"of": "yesterday"})
    first.s3.upload_fileobj(io.BytesIO(b"x" * (9 << 20)), BUCKET, "large")
    first.end()
    second = start()
    assert [bucket["Name"] for bucket in second.s3.list_buckets()["Buckets"]] == [
        "raysm-local",
        BUCKET,
    ]
    assert second.get("model") == b"weights"
    assert second.s3.head_object(Bucket=BUCKET, Key="model")["Metadata"] == {"of": "yesterday"}
    assert second.s3.head_object(Bucket=BUCKET, Key="large")["ContentLength"] == 9 << 20
    assert "Contents" not in second.s3.list_objects_v2(Bucket="raysm-local")
    second.train(
        "reads",
        "cat /opt/ml/input/data/c/model",
        InputDataConfig=[channel("c", f"s3://{BUCKET}/model")],
    )
    assert second.ended("reads")["TrainingJobStatus"] == "Completed"
    second.end()


def test_a_scenario_that_says_what_there_is_not_is_refused_at_the_start(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "scenario.toml").write_text("[ssm]\npermitted = 1\n")
    command = [sys.executable, "-m", "raysm.local.server", "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "scenario.toml.ssm.permitted: " in done.stderr


@pytest.mark.namespace
def test_an_image_says_what_plays_the_instances(server):
    image = {"TrainingImage": "raysm/namespace:latest"}
    server.train("spaces", "hostname; ls -d /opt/ml/model; echo $PPID", count=2, algorithm=image)
    assert server.ended("spaces")["TrainingJobStatus"] == "Completed"
    lines = [text for host, text in server.lines("spaces") if host == "algo-2"]
    assert lines == ["aws", "/opt/ml/model", "1"]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_server_whose_home_is_deleted_ends_with_its_instances_and_makes_it_not_anew(
    start, tmp_path, is_made_anew
):
    home = tmp_path / "home"
    server = start()
    server.make_bucket()
    server.train("running", FOREVER, count=2)
    server.says("running", "ready")
    assert instances_of(home)
    home.rename(tmp_path / "moved")
    if is_made_anew:
        home.mkdir()
        (home / "server.json").write_text("another's")
    assert server.process.wait(SOON_S) == 0
    assert instances_of(tmp_path) == []
    # Whole paths: what came back tells who wrote it.
    left = [str(path.relative_to(home)) for path in home.rglob("*")]
    assert (left, home.exists()) == ((["server.json"], True) if is_made_anew else ([], False))


def test_it_listens_on_loopback_alone(server):
    address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        addresses = subprocess.run(
            ["hostname", "-I"], capture_output=True, text=True
        ).stdout.split()
        address = next((found for found in addresses if "." in found), None)
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection((address, server.record.port), timeout=2),
    ):
        pass

"""The server as a process: its start and end, what survives it, and whom it answers."""

import http.client
import io
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import moto
import pytest
from botocore.exceptions import ClientError
from packaging.specifiers import SpecifierSet

from raysm.contract.home import ServerRecord
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import BUCKET, SOON_S, Server, channel, instances_of, statuses, wait_until

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


def test_it_says_who_it_is_and_leaves_no_record(start, tmp_path):
    server = start()
    assert server.ask("GET", "/raysm/status")[1]["pid"] == server.process.pid
    server.end()
    assert ServerRecord.read(tmp_path / "home") is None


def test_after_kill_9_instances_are_gone_and_the_next_server_says_what_happened(start, tmp_path):
    first = start()
    first.make_bucket()
    first.train("before", "echo kept; exit 0")
    first.ended("before")
    first.train("lost", FOREVER, count=2)
    wait_until(lambda: len(first.lines("lost")) == 2)
    assert instances_of(tmp_path / "home")
    first.kill()
    wait_until(lambda: not instances_of(tmp_path / "home"))
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
    _, hard = resource.prlimit(first.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    (tmp_path / "go").touch()
    assert first.ended("full")["TrainingJobStatus"] == "Completed"
    resource.prlimit(first.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    wait_until(lambda: "training job full, which a full disk had refused, is written now" in first.log())
    first.kill()
    assert start().describe("full")["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_ends_its_jobs(start, tmp_path, number):
    first = start()
    first.train("running", FOREVER)
    first.says("running", "ready")
    first.process.send_signal(number)
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
    first.s3.create_bucket(Bucket="removed")
    first.end()
    second = start()
    second.s3.put_object(Bucket=BUCKET, Key="model", Body=b"weights", Metadata={"of": "yesterday"})
    second.s3.upload_fileobj(io.BytesIO(b"x" * (20 << 20)), BUCKET, "large")
    second.s3.delete_bucket(Bucket="removed")
    second.end()
    third = start()
    assert [bucket["Name"] for bucket in third.s3.list_buckets()["Buckets"]] == ["raysm-local", BUCKET]
    assert third.get("model") == b"weights"
    assert third.s3.head_object(Bucket=BUCKET, Key="model")["Metadata"] == {"of": "yesterday"}
    assert third.s3.head_object(Bucket=BUCKET, Key="large")["ContentLength"] == 20 << 20
    assert "Contents" not in third.s3.list_objects_v2(Bucket="raysm-local")
    third.put("more", b"1")
    third.train("reads", "cat /opt/ml/input/data/c/model", InputDataConfig=[channel("c", f"s3://{BUCKET}/model")])
    assert third.ended("reads")["TrainingJobStatus"] == "Completed"
    third.end()


def test_a_bucket_that_cannot_be_read_is_put_aside_and_told(start, tmp_path):
    first = start()
    first.make_bucket()
    first.put("model", b"weights")
    first.s3.create_bucket(Bucket="other")
    first.end()
    (stored,) = (tmp_path / "home" / "s3").glob(f"*/{BUCKET}")
    content = stored.read_bytes()
    stored.write_bytes(content[: len(content) // 2])
    second = start()
    assert [bucket["Name"] for bucket in second.s3.list_buckets()["Buckets"]] == ["other"]
    assert f"the bucket {BUCKET} could not be read" in second.log()
    (aside,) = (tmp_path / "home" / "s3" / "unreadable").iterdir()
    assert str(aside) in second.log()
    assert aside.read_bytes() == content[: len(content) // 2]
    second.make_bucket()
    second.end()
    assert aside.is_file()


def test_buckets_that_another_moto_wrote_are_told(start, tmp_path):
    old = tmp_path / "home" / "s3" / "4.0.0" / BUCKET
    old.parent.mkdir(parents=True)
    old.write_bytes(b"x")
    server = start()
    assert f"{old.parent} holds buckets that moto 4.0.0 wrote" in server.log()
    server.end()
    assert old.is_file()


def test_moto_whose_internals_are_used_has_an_upper_bound_that_admits_the_one_here():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    (bounds,) = re.findall(r'"moto\[s3\]([^"]+)"', text)
    assert "<" in bounds
    assert SpecifierSet(bounds).contains(moto.__version__)


def test_a_job_that_can_go_on_finds_its_payload_after_a_planned_end(start):
    first = start()
    first.make_bucket()
    first.s3.create_bucket(Bucket="raysm-local")
    for name in ("long", "short"):
        first.s3.put_object(Bucket="raysm-local", Key=f"raysm/{name}/payload/code", Body=name.encode())
        seconds, tags = {"StoppingCondition": {"MaxRuntimeInSeconds": 1}}, {"raysm:max-restarts": "1"}
        first.train(
            name,
            FOREVER if name == "long" else "exit 0",
            InputDataConfig=[channel("raysm", f"s3://raysm-local/raysm/{name}/payload/")],
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            **seconds,
        )
    assert first.ended("long")["SecondaryStatus"] == "MaxRuntimeExceeded"
    first.ended("short")
    first.end()
    second = start()
    listed = second.s3.list_objects_v2(Bucket="raysm-local")["Contents"]
    assert [item["Key"] for item in listed] == ["raysm/long/payload/code"]
    got = second.s3.get_object(Bucket="raysm-local", Key="raysm/long/payload/code")
    assert got["Body"].read() == b"long"
    second.end()


def test_jobs_and_data_are_closed_to_other_users_where_the_home_was_open(start, tmp_path):
    (tmp_path / "home" / "jobs").mkdir(parents=True, mode=0o755)
    server = start()
    modes = [(tmp_path / "home" / name).stat().st_mode & 0o777 for name in ("jobs", "data", "s3")]
    assert modes == [0o700] * 3
    server.end()


def test_what_a_killed_server_left_of_a_job_that_had_ended_is_removed(start, tmp_path):
    first = start()
    first.make_bucket()
    first.train("done", "exit 0")
    first.ended("done")
    first.kill()
    work = tmp_path / "home/jobs/training/done/work"
    (work / "1").mkdir(parents=True, exist_ok=True)  # or the first server was killed before it came to that
    second = start()
    assert not work.exists()
    second.end()


def test_a_scenario_that_says_what_there_is_not_is_refused_at_the_start(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "scenario.toml").write_text("[outputs]\nlast_writer = 'tail'\n")
    command = [sys.executable, "-m", "raysm.local.server", "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "scenario.toml.outputs.last_writer: expected one of 'head', 'random', got 'tail'" in done.stderr


@pytest.mark.namespace
def test_an_image_says_what_plays_the_instances(server):
    image = {"TrainingImage": "raysm/namespace:latest"}
    server.train("spaces", "hostname; ls -d /opt/ml/model; echo $PPID", count=2, algorithm=image)
    assert server.ended("spaces")["TrainingJobStatus"] == "Completed"
    lines = [text for host, text in server.lines("spaces") if host == "algo-2"]
    assert lines == ["aws", "/opt/ml/model", "1"]


def test_a_tag_that_names_no_kind_of_instance_is_refused(server):
    with pytest.raises(ClientError, match="'nonsense' names no kind of instance: simulated, process, namespace"):
        server.train("kindless", "exit 0", Tags=[{"Key": "raysm:instance-kind", "Value": "nonsense"}])


def test_it_ends_when_it_is_idle_but_not_while_a_job_runs(start):
    server = start("--idle-s", "5")
    server.make_bucket()
    server.train("short", "sleep 6")
    assert server.process.wait(SOON_S) == 0
    again = start()
    assert again.describe("short")["TrainingJobStatus"] == "Completed"
    again.end()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_server_whose_home_is_deleted_ends_with_its_instances_and_makes_it_not_anew(start, tmp_path, is_made_anew):
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


def test_a_home_has_one_server(start, tmp_path):
    server = start()
    second = subprocess.run(
        [sys.executable, "-m", "raysm.local.server", "--home", str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    assert second.returncode == 2
    assert "runs already" in second.stderr
    assert server.ask("GET", "/raysm/status")[0] == 200
    server.end()


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://example.org"}, {"Host": "example.org"}, {"Host": "127.0.0.1.example.org"}]
)
def test_it_answers_no_page_in_a_browser(server, headers):
    for method, path in (("POST", "/raysm/shutdown"), ("OPTIONS", "/"), ("GET", "/test-bucket")):
        connection = http.client.HTTPConnection("127.0.0.1", server.record.port, timeout=60)
        connection.request(method, path, headers=headers)
        assert connection.getresponse().status == 403
        connection.close()


# The family of the socket, the address that it binds, and the one to which it connects.


def test_it_listens_on_loopback_alone(server):
    address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
        address = next((found for found in addresses if "." in found), None)
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((address, server.record.port), timeout=2):
        pass


def test_an_unknown_operation_of_ours_is_said(server):
    assert server.ask("GET", "/raysm/nonsense")[0] == 404

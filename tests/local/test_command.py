"""The commands about the embedded SageMaker; its server is real."""

import contextlib
import io
import json
import subprocess
import sys
import time

import pytest
from rich.console import Console

from raysm.cli import jobs
from raysm.cli.arguments import parse
from raysm.core.protocol.home import VARIABLE, ServerRecord
from raysm.errors import InvalidRequest, JobNotFound
from raysm.local import command as local_server
from tests.support.homes import in_home, serving
from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import Server, channel
from tests.support.waiting import until

# Each command makes clients anew, which takes a loaded machine long.
pytestmark = pytest.mark.timeout(600)

FOREVER = "echo ready; while :; do sleep 0.05; done"


@contextlib.contextmanager
def running_server(home):
    """The server of the home that the commands use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(home))
        running = Server(home, "--instance-kind", "process", "--cores", "2", "--stop-grace-s", "1")
        try:
            running.make_bucket()
            yield running
            running.end()
        finally:
            running.kill()
        assert_nothing_left(home, running.process.pid)


@pytest.fixture
def server(tmp_path):
    with running_server(tmp_path / "home") as running:
        yield running


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A server that several tests share, with the bucket of the payloads."""
    with running_server(tmp_path_factory.mktemp("kept") / "home") as running:
        running.s3.create_bucket(Bucket="raysm-local")
        yield running


def command(*argv):
    """Run a command here; return what it printed through its console."""
    written = io.StringIO()
    arguments, console = parse(argv), Console(file=written, width=200)
    (local_server if arguments.command == "local" else jobs).run(arguments, console)
    return written.getvalue()


def test_down_names_the_active_jobs_and_ends_them_with_force_alone(server, capsys):
    server.train("first", FOREVER)
    server.train("second", FOREVER, count=2)
    server.says("first", "ready")
    with pytest.raises(InvalidRequest, match="first, second.*--force"):
        command("local", "down")
    with pytest.raises(InvalidRequest):
        command("local", "down", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["running"], answer["ended"], answer["active_jobs"]) == (
        True,
        False,
        ["first", "second"],
    )
    assert server.process.poll() is None
    assert "first, second" in command("local", "down", "--force")
    assert server.process.wait(90) == 0


def test_who_follows_a_job_whose_server_is_told_to_end_ends_too_and_starts_no_other(server):
    server.train("followed", FOREVER)
    server.says("followed", "ready")
    logs = "from raysm.cli.main import main; raise SystemExit(main(['logs', '-f', 'followed']))"
    begin = [sys.executable, "-c", logs]
    with subprocess.Popen(
        begin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert "ready" in following.stdout.readline()
        assert "followed" in command("local", "down", "--force")
        _, errors = following.communicate(timeout=120)
    # Its last look may have come before the end of the server, but after that of the job.
    assert errors == "" or "was ended, and its jobs with it" in errors
    assert ServerRecord.read(server.home) is None
    assert server.process.wait(90) == 0


def sent(server, name, script="touch /opt/ml/model/x; sleep 0", **fields):
    """Create a job as raysm does, with what it leaves in the home."""
    data = (server.home / "data").as_uri()
    tags = {"raysm:project": "default", "raysm:task": "task", **fields.pop("tags", {})}
    for key in (f"raysm/payloads/default/{name}/start.py",):
        server.s3.put_object(Bucket="raysm-local", Key=key, Body=b"x")
    record = server.home / "data/default/task/jobs" / f"{name}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("{}")
    server.train(
        name,
        script + "; mkdir -p /opt/ml/checkpoints; touch /opt/ml/checkpoints/c",
        OutputDataConfig={"S3OutputPath": f"{data}/default", "CompressionType": "NONE"},
        CheckpointConfig={"S3Uri": f"{data}/default/task/state/{fields.pop('state', name)}"},
        InputDataConfig=[
            channel("raysm", f"s3://raysm-local/raysm/payloads/default/{name}/"),
            *fields.pop("inputs", ()),
        ],
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        **fields,
    )


def ended(server, name):
    """Return how a job ended, once the server has also removed what only its instances needed."""
    description = server.ended(name)
    until(lambda: not (server.home / "jobs" / "training" / name / "work").exists(), 60)
    return description


def left(server):
    """Return what lies in the home of jobs, but for folders."""
    below = [path for part in ("jobs", "data") for path in (server.home / part).rglob("*")]
    listed = server.s3.list_objects_v2(Bucket="raysm-local").get("Contents", [])
    return {path.relative_to(server.home).as_posix() for path in below if path.is_file()} | {
        i["Key"] for i in listed
    }


def test_rm_removes_all_of_a_job_that_ended_and_nothing_of_others(kept):
    sent(kept, "stays")
    ended(kept, "stays")
    before = left(kept)
    for name in ("one", "two"):
        sent(kept, name)
        assert ended(kept, name)["TrainingJobStatus"] == "Completed"
    assert {"data/default/one/output/model/x", "data/default/task/state/one/c"} <= left(kept)
    assert command("rm", "one", "two").split() == ["removed", "one", "removed", "two"]
    assert left(kept) == before
    with pytest.raises(JobNotFound):
        command("rm", "one")


def test_checkpoints_that_another_job_may_go_on_from_stay(kept):
    for name in ("first", "again"):
        sent(kept, name, state="first")
        ended(kept, name)
    command("rm", "first")
    assert "data/default/task/state/first/c" in left(kept)
    command("rm", "again")
    assert "data/default/task/state/first/c" not in left(kept)


def test_data_from_memory_are_removed_with_the_last_job_that_read_them(kept):
    file = kept.home / "inputs/0a/matrix.npy"
    file.parent.mkdir(parents=True)
    file.touch()
    for name in ("first", "again"):
        sent(kept, name, inputs=[channel("matrix", file.as_uri())])
        ended(kept, name)
    command("rm", "first")
    assert file.exists()
    command("rm", "again")
    assert not file.parent.exists()


def test_rm_touches_no_job_where_one_is_active_or_read_by_one_that_is(kept):
    sent(kept, "source")
    ended(kept, "source")
    model = (kept.home / "data/default/source/output/model").as_uri()
    sent(kept, "reader", FOREVER, inputs=[channel("c", model)])
    kept.says("reader", "ready")
    before = left(kept)
    with pytest.raises(InvalidRequest, match="^reader is InProgress"):
        command("rm", "reader", "source")
    with pytest.raises(InvalidRequest, match="source .*reader, .*InProgress"):
        command("rm", "source")
    assert "source is an input of reader" in command("local", "clean", "--keep", "0")
    assert left(kept) >= {path for path in before if "/source" in path}
    kept.sm.stop_training_job(TrainingJobName="reader")
    ended(kept, "reader")


def test_clean_keeps_the_latest_and_a_dry_run_keeps_all(kept, capsys):
    for name in ("old", "new"):
        sent(kept, name)
        ended(kept, name)
    # None of them is a week old.
    assert command("local", "clean").split()[:2] == ["removed", "none"]
    command("local", "clean", "--keep", "1", "--dry-run", "--json")
    removed = json.loads(capsys.readouterr().out)["would_remove"]
    assert "old" in removed
    assert "new" not in removed
    command("local", "status", "--json")
    status = json.loads(capsys.readouterr().out)
    assert set(status["job_bytes"]) >= {"old", "new"}
    assert status["home_bytes"] > sum(status["job_bytes"].values()) > 0
    command("local", "clean", "--keep", "1", "--older-than", "0m")
    assert {path.split("/")[2] for path in left(kept) if path.startswith("jobs/")} == {"new"}


ENDING = """
import fcntl, sys, time
lock = open(sys.argv[1] + "/server.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(0.5)
open(sys.argv[1] + "/saved", "w").close()
"""


def test_down_waits_for_a_server_that_is_already_ending_and_still_saves(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", ENDING, str(tmp_path)], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout.readline() == b"ready\n"
        command("local", "down")
        assert (tmp_path / "saved").exists()


def test_down_does_not_wait_for_a_server_of_a_home_whose_lock_cannot_be_read(tmp_path):
    (tmp_path / "server.lock").mkdir()
    began_s = time.monotonic()
    with in_home(tmp_path), pytest.raises(InvalidRequest) as refused:
        local_server.run(parse(["local", "down"]), Console(file=io.StringIO()))
    assert str(tmp_path / "server.lock") in str(refused.value)
    assert time.monotonic() - began_s < local_server.END_S / 2


def test_up_keeps_a_scenario_for_the_home_until_it_is_taken_down(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv(VARIABLE, str(home))
    chosen, other, wrong = (tmp_path / f"{name}.toml" for name in ("chosen", "other", "wrong"))
    chosen.write_text("[checkpoints]\nsync_s = 0.5\n")
    other.write_text("[checkpoints]\nsync_s = 1.5\n")
    wrong.write_text("[checkpoint]\n")
    with pytest.raises(InvalidRequest, match=r"wrong\.toml: .*'checkpoint'"):
        command("local", "up", "--scenario", str(wrong))
    with pytest.raises(InvalidRequest, match=r"none\.toml"):
        command("local", "up", "--scenario", str(tmp_path / "none.toml"))
    assert not home.exists()
    with serving(home):
        command("local", "up", "--scenario", str(chosen))
        command("local", "up", "--scenario", str(chosen))
        assert "checkpoints.sync_s = 0.5" in command("local", "status")
        with pytest.raises(InvalidRequest, match="another scenario.*raysm local down"):
            command("local", "up", "--scenario", str(other))
        command("local", "down")
        assert not (home / "scenario.toml").exists()

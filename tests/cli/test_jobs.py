"""Tests of ``raysm.cli.jobs``."""

import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.interrupts import Interrupted
from raysm.cli.jobs import await_end, find_to_read, run
from raysm.core.client.job.handle import attach
from raysm.core.client.job.records import task_of
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.submit import submit
from raysm.core.protocol import events
from raysm.core.request import Local
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.features.grid.store.store import path_of
from raysm.features.script.request import Script
from tests.support.client_jobs import M5, leave
from tests.support.commands import NOW_MS, tell
from tests.support.homes import in_home

SENT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def jobs(remote, tmp_path):
    """Two of one name, of which the second was sent a second later."""
    script = tmp_path / "digits.py"
    script.write_text("pass")
    both = [
        submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2)
    ]
    for seconds, job in enumerate(both):
        remote.sagemaker.jobs[job.name]["answer"]["CreationTime"] = SENT + timedelta(
            seconds=seconds
        )
    return both


def test_where_all_of_a_name_have_ended_the_last_one_is_read_and_that_is_said(remote, jobs, capsys):
    for job in jobs:
        remote.sagemaker.end(job.name, "Completed")
    assert find_to_read("digits", remote.service) == jobs[1]
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"raysm: digits is {jobs[1].name}, the last job of that name; it has ended\n",
    )


class Written(io.StringIO):
    """Remembers what was written, and calls when a certain text has been."""

    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    def write(self, text):
        for awaited in [key for key in self._calls if key in text]:
            self._calls.pop(awaited)()
        return super().write(text)


def test_whoever_waits_for_a_result_is_told_so_and_sees_how_far_it_is(remote, job):
    tell(remote, job, events.State(name="joined", host="algo-2", count=2, total=2, time_s=1.0))
    remote.write_log(job.name, "algo-1", [(NOW_MS + 5, "a line of the script")])
    done = events.Progress(phase="similarity", done=4, total=4, unit="rows")
    out = Written(
        {
            "waiting for its result": lambda: tell(remote, job, done),
            "similarity: 100%": lambda: remote.sagemaker.end(job.name, "Completed"),
        }
    )
    await_end(job, Console(file=out, width=80), timeout_s=60.0)
    assert out.getvalue().splitlines() == [
        f"{job.name} is still InProgress: waiting for its result; raysm logs -f {job.name} shows what it writes; "
        "Ctrl-C stops waiting; the job keeps running",
        "similarity: 100% (4 of 4 rows)",
    ]


def test_ctrl_c_ends_the_waiting_and_leaves_the_job_alone(remote, job):
    def interrupt():
        raise KeyboardInterrupt

    tell(remote, job, events.Progress(phase="similarity", done=4, total=4, unit="rows"))
    out = Written({"similarity": interrupt})
    with pytest.raises(Interrupted, match=f"{job.name} keeps running$"):
        await_end(job, Console(file=out, width=80), timeout_s=60.0)
    assert remote.sagemaker.stopped == []


def printed(remote, *argv):
    out = io.StringIO()
    run(parse(argv), Console(file=out, width=80), remote.service)
    return out.getvalue()


def test_ctrl_c_ends_the_log_and_says_that_the_job_keeps_running(remote, job):
    remote.fail("describe_training_job", KeyboardInterrupt(), times=1, after=1)
    with pytest.raises(Interrupted, match=f"{job.name} keeps running$"):
        printed(remote, "logs", "-f", job.name)


# whichever job is meant


@pytest.mark.parametrize("command", ["status", "logs", "metrics", "token", "stop"])
def test_a_job_that_runs_is_known_by_its_short_name_too(remote, job, command, capsys):
    printed(remote, command, task_of(job.name))
    assert remote.sagemaker.stopped == ([job.name] if command == "stop" else [])


@pytest.mark.parametrize("command", ["logs", "status", "result"])
def test_the_name_of_a_grid_is_refused_with_the_command_that_lists_its_jobs(
    remote, tmp_path, command
):
    with in_home(tmp_path):
        path_of("drives").parent.mkdir(parents=True)
        path_of("drives").touch()
        with pytest.raises(InvalidRequest, match=f"raysm grid rows drives .*raysm {command}"):
            printed(remote, command, "drives")


@pytest.mark.parametrize("command", ["stop", "token"])
def test_what_is_for_running_jobs_takes_none_that_has_ended_by_its_short_name(remote, job, command):
    remote.sagemaker.end(job.name, "Completed")
    with pytest.raises(JobNotFound, match=f"{job.name}, has ended"):
        printed(remote, command, task_of(job.name))


@pytest.mark.parametrize("command", ["stop", "debug"])
def test_of_two_jobs_of_one_name_none_is_stopped_or_opened_by_chance(
    remote, job, tmp_path, command
):
    submit(Script(str(tmp_path / "train.py")), cluster=M5, on=remote.service)
    with pytest.raises(InvalidRequest, match=f"2 jobs .*{job.name}"):
        printed(remote, command, task_of(job.name))
    assert remote.sagemaker.stopped == []


# logs


def test_the_printed_log_has_metrics_where_they_are_asked_for(remote, job, capsys):
    tell(remote, job, events.Metric(name="loss", value=0.5, step=3))
    printed(remote, "logs", job.name)
    assert capsys.readouterr().out == ""
    printed(remote, "logs", "--metrics", job.name)
    assert capsys.readouterr().out == "metrics at step 3: loss = 0.5\n"


# debug


def test_who_opens_a_job_is_told_the_commands_and_who_shuts_it_none(remote, job):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = "Training"
    opened = printed(remote, "debug", job.name)
    assert f"--target sagemaker-training-job:{job.name}_algo-1" in opened
    assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert "remote debugging is off" in printed(remote, "debug", "--off", job.name)
    assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": False}


def test_the_token_of_a_job_is_that_of_its_payload_as_long_as_there_is_one(remote, job, capsys):
    printed(remote, "token", job.name)
    assert len(capsys.readouterr().out.strip()) == 64
    remote.sagemaker.end(job.name, "Completed")
    printed(remote, "result", job.name)
    with pytest.raises(JobNotFound, match=f"{job.name} was deleted"):
        printed(remote, "token", job.name)


# result --what


def test_data_state_and_logs_are_fetched_also_of_a_job_that_failed(remote, job, tmp_path, capsys):
    leave(remote, job, "data/scores.csv", b"1,2")
    state = job.describe().answer["CheckpointConfig"]["S3Uri"].rstrip("/")
    Storage(remote.service).write(f"{state}/algo-1/epoch.txt", b"7")
    remote.write_log(job.name, "algo-2", [(NOW_MS, "a line of algo-2")])
    remote.sagemaker.end(job.name, "Failed")
    for what, file, content in (
        ("data", "scores.csv", "1,2"),
        ("state", "algo-1/epoch.txt", "7"),
        ("logs", "algo-2.log", "algo-2 | a line of algo-2\n"),
    ):
        printed(remote, "result", job.name, "--what", what, "--output", str(tmp_path / what))
        assert capsys.readouterr().out == f"{tmp_path / what}\n"
        assert (tmp_path / what / file).read_text() == content
    with pytest.raises(InvalidRequest, match=re.escape(str(tmp_path / "data"))):
        job.download("data", tmp_path / "data")


def test_the_manifest_of_a_result_that_is_copied_arrives_after_all_other_files(
    remote, job, tmp_path
):
    leave(remote, job, "model/weights.bin", bytes(8 << 20))
    leave(remote, job, "model/manifest.json", b"{}")
    remote.sagemaker.end(job.name, "Completed")
    folder = job.download("model", tmp_path / "model")
    assert (folder / "manifest.json").stat().st_ctime_ns > (
        folder / "weights.bin"
    ).stat().st_ctime_ns


def test_an_output_that_the_job_left_empty_is_an_error_and_makes_no_folder(remote, job, tmp_path):
    remote.sagemaker.end(job.name, "Failed")
    for what in ("model", "data", "state"):
        with pytest.raises(ServiceError, match=f"{job.name} left no {what}"):
            printed(remote, "result", job.name, "--what", what, "--output", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("home")
def test_a_job_in_another_region_of_this_machine_is_found_by_its_name_alone(tmp_path, capsys):
    script = tmp_path / "far.py"
    script.write_text("pass")
    sent = submit(
        Script(str(script)), name="far", on=Local(regions=("eu-west-1",), instance_kind="simulated")
    )
    assert attach(sent.name).service.region == "eu-west-1"
    for words in (
        ["status", sent.name],
        ["logs", sent.name],
        ["status", "far"],
        ["stop", sent.name],
    ):
        run(parse(words), Console(file=io.StringIO()))
    sent.wait(timeout=60)
    run(parse(["rm", sent.name, "--json"]), Console(file=io.StringIO()))
    assert json.loads(capsys.readouterr().out)["removed"] == [sent.name]
    with pytest.raises(JobNotFound):
        attach(sent.name)

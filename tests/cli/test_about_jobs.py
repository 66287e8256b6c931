"""The commands about jobs that there are, against a service that says what the test wants."""

import io
import json
import re
import time

import pytest
from rich.console import Console

from raysm.cli import about_jobs
from raysm.cli.arguments import parse
from raysm.cli.waiting import await_end
from raysm.client.submit import submit
from raysm.contract import events
from raysm.errors import InvalidRequest, NotDone
from raysm.request import Cluster, Script
from tests.support.sagemaker import fake_aws

NOW_MS = int(time.time() * 1000) - 60_000


@pytest.fixture
def remote():
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def job(remote, tmp_path):
    (tmp_path / "train.py").touch()
    return submit(Script(str(tmp_path / "train.py")), cluster=Cluster("ml.m5.large", count=2), on=remote.service)


def printed(remote, *argv):
    out = io.StringIO()
    about_jobs.run(parse(argv), Console(file=out, width=80), remote.service)
    return out.getvalue()


def tell(remote, job, *told):
    lines = [(NOW_MS + at, events.line(event)) for at, event in enumerate(told)]
    remote.write_log(job.name, "algo-1", lines)


# result


@pytest.mark.parametrize("flags", [["--no-wait"], ["--timeout", "0"]])
def test_the_result_of_a_job_that_runs_is_not_waited_for_where_that_is_asked(remote, job, flags):
    with pytest.raises(NotDone, match=rf"{job.name} is still InProgress; raysm logs -f {job.name} shows"):
        printed(remote, "result", job.name, *flags)


def test_the_result_of_a_job_that_has_ended_needs_no_waiting(remote, job):
    remote.sagemaker.end(job.name, "Completed")
    assert printed(remote, "result", job.name, "--no-wait").startswith("completed")


def test_a_timeout_ends_the_waiting_and_not_the_job(remote, job, capsys):
    with pytest.raises(NotDone, match=r"has not ended within 0.05 s; it goes on"):
        printed(remote, "result", job.name, "--timeout", "0.05")
    assert remote.sagemaker.stopped == []
    with pytest.raises(InvalidRequest, match="at least 0 seconds, got -1"):
        printed(remote, "result", job.name, "--timeout=-1")


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
        "Ctrl-C leaves the job alone",
        "similarity: 100% (4 of 4 rows)",
    ]


def test_ctrl_c_ends_the_waiting_and_leaves_the_job_alone(remote, job):
    def interrupt():
        raise KeyboardInterrupt

    tell(remote, job, events.Progress(phase="similarity", done=4, total=4, unit="rows"))
    out = Written({"similarity": interrupt})
    with pytest.raises(KeyboardInterrupt):
        await_end(job, Console(file=out, width=80), timeout_s=60.0)
    assert out.getvalue().splitlines()[-1] == f"{job.name} goes on"
    assert remote.sagemaker.stopped == []


# logs


def test_the_log_of_an_instance_that_is_not_there_is_refused_with_those_that_are(remote, job):
    with pytest.raises(InvalidRequest, match="has algo-1, algo-2"):
        printed(remote, "logs", "--instance", "algo-9", job.name)


def test_the_printed_log_has_metrics_where_they_are_asked_for(remote, job, capsys):
    tell(remote, job, events.Metric(name="loss", value=0.5, step=3))
    printed(remote, "logs", job.name)
    assert capsys.readouterr().out == ""
    printed(remote, "logs", "--metrics", job.name)
    assert capsys.readouterr().out == "metrics at step 3: loss = 0.5\n"


# metrics


@pytest.fixture
def trained(remote, job):
    """A job with two steps, and what its instances measured."""
    tell(
        remote,
        job,
        events.Metric(name="loss", value=1.0, step=1, time_s=10.0),
        events.Metric(name="val/loss", value=1.5, step=1, time_s=10.0),
        events.Metric(name="cpu_percent", value=50.0, host="algo-2", time_s=15.0),
        events.Metric(name="cpu_percent", value=100.0, host="algo-2", time_s=25.0),
        events.Metric(name="loss", value=0.5, step=2, time_s=20.0),
    )
    return job


def test_metrics_are_a_row_for_each_step_and_a_column_for_each_name(remote, trained):
    assert [line.split() for line in printed(remote, "metrics", trained.name).splitlines()] == [
        ["step", "loss", "val/loss"],
        ["1", "1", "1.5"],
        ["2", "0.5"],
    ]


def test_telemetry_is_what_it_comes_to_for_each_instance(remote, trained):
    assert [line.split() for line in printed(remote, "metrics", "--telemetry", trained.name).splitlines()] == [
        ["instance", "metric", "values", "mean", "most", "last"],
        ["algo-2", "cpu_percent", "2", "75", "100", "100"],
    ]
    assert len(printed(remote, "metrics", "--all", trained.name).splitlines()) == 5


def test_metrics_are_chosen_by_their_names(remote, trained):
    assert printed(remote, "metrics", "--name", "val/*", trained.name).split() == ["step", "val/loss", "1", "1.5"]
    said = printed(remote, "metrics", "--name", "lss", "--name", "acc", trained.name)
    assert said == f"no metric is named lss or acc; {trained.name} has loss, val/loss\n"


def test_metrics_as_json_are_all_unless_fewer_are_asked_for(remote, trained, capsys):
    names = []
    for flags in ([], ["--telemetry"], ["--name", "loss"]):
        printed(remote, "metrics", "--json", *flags, trained.name)
        names.append({metric["name"] for metric in json.loads(capsys.readouterr().out)})
    assert names == [{"loss", "val/loss", "cpu_percent"}, {"cpu_percent"}, {"loss"}]


def test_a_wide_table_is_never_cut(remote, job):
    told = [events.Metric(name=f"a-rather-long-name-{at}", value=at, step=1) for at in range(20)]
    tell(remote, job, *told)
    assert re.findall(r"a-rather-long-name-\d+", printed(remote, "metrics", job.name).splitlines()[0]) == [
        metric.name for metric in told
    ]


def test_of_a_script_without_metrics_it_is_said_how_one_is_reported(remote, job):
    said = printed(remote, "metrics", job.name)
    assert said.startswith("no metrics yet: ")
    assert "raysm.report(loss=0.5)" in said
    tell(remote, job, events.Metric(name="peak_memory_bytes", value=1.0, host="algo-1"))
    remote.sagemaker.end(job.name, "Completed")
    assert printed(remote, "metrics", job.name).startswith(
        f"no metrics but those of the instances (raysm metrics --telemetry {job.name}): "
    )

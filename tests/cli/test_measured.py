"""The table of metrics, and what is said where there are none."""

import io
import json
import re

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.cli.measured import print_metrics
from raysm.client.job.handle import attach
from raysm.contract import events
from tests.support.commands import tell


def printed(remote, command, *argv):
    """Return what the command prints of the job that its arguments name."""
    out, arguments = io.StringIO(), parse([command, *argv])
    print_metrics(arguments, attach(arguments.job, remote.service), Console(file=out, width=80))
    return out.getvalue()


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


def test_without_telemetry_it_is_said_which_jobs_have_it(remote, job):
    said = printed(remote, "metrics", "--telemetry", job.name)
    assert said.startswith(f"no metrics of the instances of {job.name} yet: in a training each instance tells")
    assert "every other job only its peak memory" in said
    remote.sagemaker.end(job.name, "Completed")
    assert f"of {job.name}: " in printed(remote, "metrics", "--telemetry", job.name)

"""The command ``raysm jobs``."""

import datetime
import io
import json

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.core.client.job.handle import attach
from raysm.core.client.submit import submit
from raysm.core.protocol import events
from raysm.core.request import Cluster
from raysm.errors import InvalidRequest
from raysm.features.experiments.command import run
from raysm.features.script.request import Script
from tests.support.commands import tell


def printed(remote, *argv):
    out = io.StringIO()
    run(parse(["jobs", *argv]), Console(file=out, width=80), remote.service)
    return out.getvalue()


@pytest.fixture
def three(remote, script):
    """Three jobs that ended, with learning rates of 0.1, 0.2 and 0.3 and losses of 3, 1 and 2."""
    names = []
    for number, loss in enumerate((3.0, 1.0, 2.0), 1):
        work = Script(str(script), args=["--lr", number / 10, "--batch", "32"])
        job = submit(
            work, cluster=Cluster("ml.m5.large"), on=remote.service, project=f"p{number // 3}"
        )
        tell(
            remote,
            job,
            events.Metric(name="loss", value=9.0, step=0),
            events.Metric(name="loss", value=loss, step=1),
        )
        remote.sagemaker.end(job.name, "Completed")
        names.append(job.name)
    return names


def rows(text):
    return [line.split() for line in text.splitlines()]


def test_alone_it_lists_and_asks_nothing_of_single_jobs(remote, three, capsys):
    described = remote.sagemaker.described
    assert all(name in printed(remote) for name in three)
    assert remote.sagemaker.described == described
    printed(remote, "--json", "--limit", "2")
    out, err = capsys.readouterr()
    assert [job["name"] for job in json.loads(out)] == three[:0:-1]
    assert "these are the latest 2; for more: raysm jobs --limit 4" in err


def test_a_long_status_is_told_whole_in_120_columns(remote, job):
    message = "waits for 2 of 2 cores, " * 5
    remote.sagemaker.jobs[job.name]["answer"] |= {
        "SecondaryStatus": "Pending",
        "SecondaryStatusTransitions": [
            {"Status": "Pending", "StartTime": job.describe().created, "StatusMessage": message}
        ],
    }
    text = printed(remote)
    assert max(map(len, text.splitlines())) <= 120
    assert f"Pending: {message.rstrip()}" in " ".join(text.split())


def test_the_table_fits_120_columns_with_what_was_named_and_says_what_it_leaves_out(
    remote, script, capsys
):
    for number in range(2):
        options = [
            word for name in range(20) for word in (f"--option-{name}", f"{number}-{'x' * 40}")
        ]
        submit(Script(str(script), args=options), cluster=Cluster("ml.m5.large"), on=remote.service)
    text = printed(remote, "--params", "--sort", "option-17")
    assert max(map(len, text.splitlines())) <= 120
    assert "option-17" in text.splitlines()[0]
    assert "not shown: " in capsys.readouterr().err
    named = printed(remote, "--params", "option-3,option-4,option-5").splitlines()[0].split()
    assert named[2:5] == ["option-3", "option-4", "option-5"]


def test_parameters_and_metrics_are_columns_and_it_is_sorted_by_one(remote, three):
    head, *body = rows(
        printed(remote, "--params", "lr,batch", "--metrics", "loss,loss:max", "--sort", "loss")
    )
    assert head == ["name", "status", "lr", "batch", "loss", "loss:max", "sent", "took", "cost"]
    assert [(row[0], *row[2:6]) for row in body] == [
        (three[1], "0.2", "32", "1", "9"),
        (three[2], "0.3", "32", "2", "9"),
        (three[0], "0.1", "32", "3", "9"),
    ]
    head, *body = rows(printed(remote, "--sort=-lr"))
    assert [row[0] for row in body] == three[::-1]
    assert head[2] == "lr", "the column by which they are sorted is shown"


def test_without_names_the_parameters_in_which_jobs_differ_are_columns(remote, three):
    assert rows(printed(remote, "--params", "--metrics"))[0][2:4] == ["lr", "loss"]
    assert rows(printed(remote, "--params", "b*"))[0][2] == "batch"


def test_behind_a_sweep_are_its_trials_which_are_sorted_as_jobs_are(remote, three):
    tried = {0: (0.5, 0.9), 1: (0.6, 0.1)}
    ended = [
        events.Trial(
            number=number, status="done", params={"lr": lr}, metrics={"loss": loss}, value=loss
        )
        for number, (lr, loss) in tried.items()
    ]
    (job,) = (attach(name, remote.service) for name in three[2:])
    tell(remote, job, *ended)
    # What was read of it before is not asked again: the log of a job that has ended does not grow.
    found = rows(
        printed(remote, "--trials", "--params", "lr", "--metrics", "loss", "--sort", "loss")
    )[1:]
    assert [row[0] for row in found[:2]] == [f"{three[2]}/1", f"{three[2]}/0"]
    assert found[0][1:4] == ["Completed", "0.6", "0.1"]
    assert len(found) == 5
    assert len(rows(printed(remote, "--trials", "--limit", "1"))) == 4


def test_as_json_each_job_has_all_that_is_known_of_it(remote, three, capsys):
    printed(remote, "--sort", "loss", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [job["name"] for job in found] == [three[1], three[2], three[0]]
    assert found[0]["parameters"] == {"lr": 0.2, "batch": 32}
    assert found[0]["metrics"]["loss"]["last"] == 1.0
    assert found[0]["cost_usd"] is None
    assert datetime.datetime.fromisoformat(found[0]["created"]).tzinfo is not None
    printed(remote, "--status", "Failed", "--json")
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--limit", "0"], "--limit .*got 0"),
        (["--sort", "los"], "'los'.* batch, loss, lr"),
        (["--status", "Done"], "status .*Done"),
    ],
)
def test_what_cannot_be_is_refused(remote, three, flags, message):
    with pytest.raises(InvalidRequest, match=message):
        printed(remote, *flags)

"""A job in a few words: of what the service says, and of what a job of each target shows."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from raysm.client.job.description import Description, SecondaryStatus, Status
from raysm.client.job.handle import attach
from raysm.client.job.text import html, text
from raysm.client.submit import submit
from raysm.contract.job_api import TRAINING
from raysm.request import Cluster, Local, Script
from tests.support.sagemaker import aws, fake_local

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

JOB = Description(
    name="a-job",
    arn="arn:aws:sagemaker:eu-west-1:123456789012:training-job/a-job",
    api=TRAINING,
    status=Status.COMPLETED,
    secondary=SecondaryStatus.COMPLETED,
    instances=(("ml.m5.large", 1), ("ml.g5.xlarge", 2)),
    created=BEGIN - timedelta(hours=5),
    started=BEGIN,
    ended=BEGIN + timedelta(seconds=59),
)


def test_every_group_of_instances_is_counted_and_a_status_is_not_said_twice():
    line = text(JOB, aws())
    assert line.startswith("<raysm job a-job: Completed · 1 × ml.m5.large + 2 × ml.g5.xlarge · 59 s · ")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90_061, "25 h 1 min")]
)
def test_how_long_a_job_ran_is_said_from_its_start(seconds, shown):
    job = dataclasses.replace(JOB, ended=BEGIN + timedelta(seconds=seconds))
    assert f" · {shown} · " in text(job, aws())


def test_of_one_that_runs_it_is_said_until_the_moment_that_is_named():
    running = dataclasses.replace(JOB, status=Status.IN_PROGRESS, ended=None)
    at_s = BEGIN.timestamp() + 90
    assert " · 1 min 30 s · " in text(running, aws(), at_s)
    assert "1 min 30 s" in html(running, aws(), at_s)
    # One that has ended took what it took.
    assert " · 59 s · " in text(JOB, aws(), at_s)


def test_one_that_was_stopped_while_it_waited_took_no_time():
    waited = dataclasses.replace(JOB, status=Status.STOPPED, secondary=SecondaryStatus.STOPPED, started=None)
    where = aws().describe()
    assert text(waited, aws()) == f"<raysm job a-job: Stopped · 1 × ml.m5.large + 2 × ml.g5.xlarge · {where}>"


def test_a_time_without_a_zone_and_a_clock_that_is_behind_are_borne():
    early = dataclasses.replace(JOB, ended=None, created=None, started=datetime(2200, 1, 1))
    assert " · 0 s · " in text(early, aws())


def test_a_job_of_which_nothing_but_its_name_is_known_is_a_line_without_gaps():
    job = Description(name="a-job", arn="", api=TRAINING, status=Status.UNKNOWN)
    assert text(job, Local()) == f"<raysm job a-job: Unknown · {Local().describe()}>"


def test_the_message_of_a_job_is_in_its_html_until_it_has_ended():
    job = dataclasses.replace(JOB, message="Downloading <x>")
    assert "Downloading" not in html(job, aws())
    assert "Downloading &lt;x&gt;" in html(dataclasses.replace(job, status=Status.IN_PROGRESS), aws())


def test_only_a_target_with_a_console_is_linked_to():
    assert "<a href=" in html(JOB, aws())
    assert "<a href=" not in html(JOB, Local())


def test_the_repr_says_what_a_person_wants_to_know(remote, job):
    assert "InProgress (Starting) · 2 × ml.m5.large · sent" in repr(job)
    remote.sagemaker.end(job.name, "Failed", FailureReason="ValueError: no")
    assert "Failed" in repr(job)
    assert repr(job).endswith("ValueError: no")


@pytest.mark.parametrize("kind", ["training", "processing"])
@pytest.mark.parametrize(
    ("cluster", "shown"),
    [
        (Cluster(count=2), " · 2 local instances · "),
        (Cluster(), " · 1 local instance · "),
        (Cluster("ml.m5.large", count=2), " · 2 × ml.m5.large · "),
    ],
    ids=["two", "one", "a type that was chosen"],
)
def test_instances_of_this_machine_have_no_type_that_nobody_chose(tmp_path, script, kind, cluster, shown):
    with fake_local(tmp_path) as here:
        job = submit(Script(str(script)), cluster=cluster, on=here.service, kind=kind)
        again = attach(job.name, here.service)
        assert shown in repr(job)
        assert shown in repr(again)
        assert shown.strip(" ·") in job._repr_html_()


def test_the_html_is_escaped_and_leads_to_the_console(remote, job):
    remote.sagemaker.end(job.name, "Failed", FailureReason="<script>alert(1)</script> & more")
    text = job._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert f"https://eu-west-1.console.aws.amazon.com/sagemaker/home?region=eu-west-1#/jobs/{job.name}" in text

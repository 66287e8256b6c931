"""The jobs that there are."""

from raysm.client.job.listing import jobs
from raysm.client.submit import submit
from raysm.request import Script
from tests.support.client_jobs import M5
from tests.support.sagemaker import refusal


def test_jobs_of_both_kinds_are_listed_the_latest_first(remote, script):
    made = [
        submit(Script(str(script)), cluster=M5, on=remote.service, kind=kind).name
        for kind in ("training", "processing", "training")
    ]
    assert [job.name for job in jobs(remote.service)] == made[::-1]
    assert [job.name for job in jobs(remote.service, limit=1)] == made[2:]
    assert jobs(remote.service, contains="nothing") == []


def test_why_a_job_waits_is_asked_for_of_those_that_wait_alone(remote, job):
    assert [listed.message for listed in jobs(remote.service)] == [""]
    assert remote.sagemaker.described == 0


def test_a_job_that_is_removed_while_the_list_is_made_is_listed_without_a_reason(remote, job):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = "Pending"
    gone = refusal("ValidationException", "Requested resource not found.", "DescribeTrainingJob")
    remote.fail("describe_training_job", gone)
    assert [(listed.name, listed.message) for listed in jobs(remote.service)] == [(job.name, "")]

"""To which queue a job may be sent, and which jobs a list has."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.queues import listed_jobs, queue_for
from raysm.local.server.batch.records import BatchJob
from raysm.local.server.batch.resources import Resource, Resources


def job(name, status="RUNNING", *, created_s=0.0, **request):
    return BatchJob(
        id=name, kind="job", name=name, region="r", queue="q", request=request, created_s=created_s, status=status
    )


def names(jobs, **request):
    return [item["name"] for item in listed_jobs(jobs, request, lambda one: {"name": one.name})["jobSummaryList"]]


def test_without_a_status_those_that_run_are_listed_the_latest_first():
    jobs = [job("old"), job("new", created_s=1.0), job("done", "SUCCEEDED")]
    assert names(jobs) == ["new", "old"]
    assert names(jobs, jobStatus="SUCCEEDED") == ["done"]


def test_a_filter_replaces_the_status():
    jobs = [job("train-1", "SUCCEEDED"), job("train-2"), job("other")]
    chosen = names(jobs, jobStatus="RUNNING", filters=[{"name": "JOB_NAME", "values": ["TRAIN-*"]}])
    assert sorted(chosen) == ["train-1", "train-2"]


def test_a_filter_that_there_is_not_is_named():
    with pytest.raises(ApiError, match="no filter 'COLOUR'"):
        names([job("a")], filters=[{"name": "COLOUR", "values": ["red"]}])


@pytest.mark.parametrize(
    ("body", "request_", "wrong"),
    [
        ({"state": "DISABLED"}, {}, "DISABLED: it takes no jobs"),
    ],
)
def test_a_queue_that_takes_no_such_job_says_so(tmp_path, body, request_, wrong):
    resources = Resources(tmp_path)
    usual = {"computeEnvironmentOrder": [{"order": 1, "computeEnvironment": "e"}]}
    resources.add(Resource(part="job-queue", region="r", name="q", body={**usual, **body}))
    with pytest.raises(ApiError, match=wrong):
        queue_for(resources, "r", {"jobQueue": "q", **request_})

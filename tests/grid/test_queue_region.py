"""A region behind a queue of AWS Batch: one service job an attempt, against a scripted Batch and the client's fake."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from raysm.client.description import SecondaryStatus, Status
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.grid.attempt import Attempt
from raysm.grid.classify import of_refusal
from raysm.grid.queue_region import LONGEST_PAYLOAD, QueueRegion
from raysm.grid.task import Task
from tests.support.grid_regions import preparing
from tests.support.sagemaker import fake_aws, refusal
from tests.support.scripted_batch import ScriptedBatch

ATTEMPT = Attempt(
    task="a", number=1, name="g-abcdef-01234567-a1", region="us-east-1", instance_type="ml.m5.large", count=1
)
NAME = ATTEMPT.name
TASK = Task(key="a")


@pytest.fixture
def fake():
    with fake_aws() as fake:
        fake.clients["batch"] = ScriptedBatch(fake.sagemaker)
        yield fake


@pytest.fixture
def batch(fake):
    return fake.clients["batch"]


@pytest.fixture
def opened(fake, tmp_path):
    """Return a controller's view of the region; each call is that of a controller that begins anew."""
    prepared = preparing(fake.service, tmp_path)
    return lambda share="": QueueRegion(fake.service, prepared, "g-abcdef-", "training", share)


def payloads(fake):
    listed = fake.s3.list_objects_v2(Bucket=fake.service.bucket.name).get("Contents", ())
    return [item["Key"] for item in listed if "/payloads/" in item["Key"]]


def test_an_attempt_is_a_service_job_of_its_name_that_batch_tries_once(batch, opened):
    opened().create(replace(TASK, tags={"team": "red"}), ATTEMPT)
    (request,) = batch.requests
    assert (request["jobName"], request["clientToken"], request["jobQueue"]) == (NAME, NAME, "training")
    assert request["retryStrategy"] == {"attempts": 1}
    assert request["tags"]["team"] == "red"
    assert '"Tags"' not in request["serviceRequestPayload"]
    assert "shareIdentifier" not in request


def test_of_a_queue_with_shares_a_job_says_its_own_and_the_rows_priority(batch, opened):
    for number, priority in enumerate((7, -1, 10**6)):
        attempt = replace(ATTEMPT, name=f"{NAME}{number}")
        opened("research").create(replace(TASK, priority=priority), attempt)
    assert [request["schedulingPriority"] for request in batch.requests] == [7, 0, 9999]
    assert {request["shareIdentifier"] for request in batch.requests} == {"research"}


def test_a_request_that_is_longer_than_batch_takes_is_refused_before_anything_is_sent(fake, batch, opened):
    long = replace(
        TASK, position=3, environment={f"TEXT_{number}": "x" * 500 for number in range(LONGEST_PAYLOAD // 500)}
    )
    with pytest.raises(InvalidRequest, match=r"row 3 \(a\) is 1\d,\d{3} bytes, and a queue takes 10,240"):
        opened().create(long, ATTEMPT)
    assert not batch.requests
    assert "put_object" not in [name for name, _ in fake.s3.calls]


def test_a_controller_that_was_killed_between_call_and_answer_finds_its_job_and_sends_none(batch, opened):
    opened().create(TASK, ATTEMPT)
    opened().create(TASK, ATTEMPT)
    assert len(batch.jobs) == len(batch.requests) == 1


def test_a_job_whose_answer_was_lost_is_there_and_keeps_its_payload(fake, batch, opened):
    batch.refusals = [(refusal("ServerException", "who knows"), True)]
    opened().create(TASK, ATTEMPT)
    assert len(batch.jobs) == 1
    assert payloads(fake)


def test_a_call_of_which_nobody_knows_whether_it_lands_leaves_the_payload_and_is_in_doubt(fake, batch, opened):
    batch.refusals = [(refusal("ServerException", "who knows"), False)]
    with pytest.raises(ServiceError) as caught:
        opened().create(TASK, ATTEMPT)
    assert of_refusal(caught.value).ending.name == "MAYBE"
    assert payloads(fake)


def test_a_definite_refusal_leaves_no_payload_and_fails_the_row(fake, batch, opened):
    batch.refusals = [(refusal("ClientException", "no such role"), False)]
    with pytest.raises(ServiceError) as caught:
        opened().create(TASK, ATTEMPT)
    assert of_refusal(caught.value).ending.name == "INVALID"
    assert not payloads(fake)


def test_a_job_that_lands_while_it_is_looked_for_is_taken_when_its_token_is_rejected(batch, opened):
    region = opened()
    region.create(TASK, ATTEMPT)
    (job,) = batch.jobs
    # As if the list came late: the first look finds nothing, and Batch rejects the token.
    batch.jobs[0] = job | {"jobName": "not yet"}
    original = batch.submit_service_job

    class Late:
        def __getattr__(self, name):
            return getattr(batch, name)

        def submit_service_job(self, **call):
            try:
                return original(**call)
            finally:
                batch.jobs[0] = job

    region._service._injected.__self__["batch"] = Late()
    opened().create(TASK, ATTEMPT)
    assert batch.jobs == [job]


def test_a_job_that_waits_is_pending_and_one_that_runs_is_its_training_job(batch, opened):
    region = opened()
    region.create(TASK, ATTEMPT)
    assert region.describe(NAME).secondary is SecondaryStatus.PENDING
    training_job = batch.begin(NAME)
    assert region.describe(NAME).name == training_job != NAME


def test_the_payload_of_a_job_that_has_ended_is_removed_whether_it_ever_ran_or_not(fake, batch, opened):
    for number, runs in enumerate((True, False)):
        name = f"{NAME}{number}"
        opened().create(TASK, replace(ATTEMPT, name=name))
        if runs:
            fake.sagemaker.end(batch.begin(name), "Completed")
        batch.change(name, "SUCCEEDED" if runs else "FAILED", isTerminated=not runs)
        assert payloads(fake)
        assert opened().describe(name).status is (Status.COMPLETED if runs else Status.STOPPED)
        assert not payloads(fake)


def test_a_training_job_that_batch_has_deleted_does_not_end_its_job(fake, batch, opened):
    opened().create(TASK, ATTEMPT)
    fake.sagemaker.delete_training_job(TrainingJobName=batch.begin(NAME))
    batch.change(NAME, "RUNNABLE")
    assert opened().describe(NAME).status is Status.IN_PROGRESS


def test_the_jobs_of_the_queue_are_listed_page_by_page_the_latest_first(batch, opened):
    region = opened()
    region.create(TASK, replace(ATTEMPT, name="g-abcdef-0-a1"))
    # As the first was sent: a payload of each takes longer than all that is shown here.
    (request,) = batch.requests
    for number in range(1, 130):
        name = f"g-abcdef-{number}-a1"
        batch.submit_service_job(**request | {"jobName": name, "clientToken": name})
    first = region.page("g-abcdef-", None)
    last = region.page("g-abcdef-", first.token)
    assert [len(first.jobs), len(last.jobs), last.token] == [100, 30, None]
    assert first.jobs[0].name == "g-abcdef-129-a1"


def test_a_job_is_ended_through_batch_by_its_own_name_and_one_that_there_is_not_is_said_so(batch, opened):
    opened().create(TASK, ATTEMPT)
    opened().stop(NAME)
    assert "raysm" in batch.terminated[NAME]
    for call in (opened().stop, opened().describe):
        with pytest.raises(JobNotFound, match="no job 'g-none-a1'"):
            call("g-none-a1")


def test_rates_are_asked_for_under_the_names_of_the_training_jobs(fake, batch, opened):
    opened().create(TASK, ATTEMPT)
    training_job = batch.begin(NAME)
    data = {
        "MetricName": "images_per_s",
        "Value": 750.0,
        "Timestamp": datetime.now(UTC),
        "Dimensions": [{"Name": "TrainingJobName", "Value": training_job}],
    }
    fake.service.client("cloudwatch").put_metric_data(Namespace="/aws/sagemaker/TrainingJobs", MetricData=[data])
    region = opened()
    assert region.rates([NAME], "images_per_s") == {}
    region.page("g-abcdef-", None)
    assert region.rates([NAME, "g-none-a1"], "images_per_s") == {NAME: 750.0}


def test_the_record_of_rows_that_share_a_job_lies_where_it_lies_without_a_queue(opened):
    assert opened().outcomes(replace(ATTEMPT, pack="p")) == {}

"""A grid's region over the service itself: one call of the API each, against the client's own fake of AWS."""

from datetime import UTC, datetime

import pytest

from raysm.client.job.description import Status
from raysm.errors import JobNotFound, ServiceError
from raysm.grid.attempt import Attempt
from raysm.grid.region import ServiceRegion, token_of
from raysm.grid.task import Task
from tests.support.grid_regions import SECRET, preparing
from tests.support.sagemaker import fake_aws, refusal

ATTEMPT = Attempt(
    task="a", number=1, name="g-abcdef-01234567-a1", region="us-east-1", instance_type="ml.m5.large", count=1
)


@pytest.fixture
def fake():
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def region(fake, tmp_path):
    return ServiceRegion(fake.service, preparing(fake.service, tmp_path))


def payload_of(fake):
    listed = fake.s3.list_objects_v2(Bucket=fake.service.bucket.name).get("Contents", ())
    return [item["Key"] for item in listed if "/payloads/" in item["Key"]]


def test_an_attempt_is_sent_under_its_own_name(fake, region):
    region.create(Task(key="a"), ATTEMPT)
    assert [call["TrainingJobName"] for call in fake.sagemaker.sent] == [ATTEMPT.name]


def test_the_same_attempt_makes_the_same_call(fake, region):
    first, second = (region._prepare(Task(key="a"), ATTEMPT) for _ in range(2))
    assert first.plan.request == second.plan.request
    assert first.contents.digests == second.contents.digests


def test_an_attempts_token_is_its_own():
    other = Attempt(task="a", number=2, name="g-abcdef-01234567-a2", region="r", instance_type="ml", count=1)
    assert token_of(SECRET, ATTEMPT) == token_of(SECRET, ATTEMPT)
    assert len({token_of(SECRET, ATTEMPT), token_of(SECRET, other), token_of("another", ATTEMPT)}) == 3
    assert len(token_of(SECRET, ATTEMPT)) == 64


def test_a_call_that_is_repeated_after_a_lost_answer_is_the_same_job(fake, region):
    fake.fail("create_training_job", refusal("InternalFailure", "who knows"), done=True)
    region.create(Task(key="a"), ATTEMPT)
    region.create(Task(key="a"), ATTEMPT)
    assert len(fake.sagemaker.jobs) == 1


def test_where_the_answer_is_lost_the_payload_stays_for_a_call_that_lands_late(fake, region):
    fake.fail("create_training_job", refusal("InternalFailure", "who knows"))
    with pytest.raises(ServiceError):
        region.create(Task(key="a"), ATTEMPT)
    assert payload_of(fake)


def test_a_definite_refusal_leaves_no_payload(fake, region):
    fake.fail("create_training_job", refusal("ResourceLimitExceeded", "0 instances"))
    with pytest.raises(ServiceError):
        region.create(Task(key="a"), ATTEMPT)
    assert not payload_of(fake)


def test_a_job_is_described_and_the_payload_of_one_that_has_ended_is_removed(fake, region):
    region.create(Task(key="a"), ATTEMPT)
    assert region.describe(ATTEMPT.name).status is Status.IN_PROGRESS
    assert payload_of(fake)
    fake.sagemaker.end(ATTEMPT.name, "Completed")
    assert region.describe(ATTEMPT.name).status is Status.COMPLETED
    assert not payload_of(fake)


def test_a_job_that_is_not_there_is_said_so(region):
    with pytest.raises(JobNotFound):
        region.describe("g-none-a1")


def test_a_job_is_asked_to_stop_by_its_name(fake, region):
    region.create(Task(key="a"), ATTEMPT)
    region.stop(ATTEMPT.name)
    assert fake.sagemaker.stopped == [ATTEMPT.name]


def test_the_rates_of_many_jobs_are_one_call(fake, region):
    now = datetime.now(UTC)
    for name, value in (("job-a", 750.0), ("job-b", 250.0)):
        fake.service.client("cloudwatch").put_metric_data(
            Namespace="/aws/sagemaker/TrainingJobs",
            MetricData=[
                {
                    "MetricName": "images_per_s",
                    "Value": value,
                    "Timestamp": now,
                    "Dimensions": [{"Name": "TrainingJobName", "Value": name}],
                }
            ],
        )
    assert region.rates(["job-a", "job-b", "job-c"], "images_per_s") == {"job-a": 750.0, "job-b": 250.0}
    assert region.rates(["job-a"], "loss") == {}

"""Service jobs of AWS Batch as a grid sees them: Batch's answers in, what is said of a job out."""

import pytest

from raysm.client.description import Description, SecondaryStatus, Status
from raysm.contract.job_api import TRAINING
from raysm.grid.classify import of_end
from raysm.grid.concluding import billed_s
from raysm.grid.queued_job import description_of, listed_of, training_job_of

ARN = "arn:aws:batch:us-east-1:123456789012:service-job/x"
FULL = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Unable to provision requested compute resources"


def answer(status, **more):
    return {"jobName": "g-a1", "jobArn": ARN, "status": status, "createdAt": 1_700_000_000_000, **more}


def training(status):
    return Description(name="AWSBatchg-a1", arn="arn", api=TRAINING, status=status)


@pytest.mark.parametrize("status", ["SUBMITTED", "PENDING", "RUNNABLE", "SCHEDULED", "a new one"])
def test_a_job_that_batch_holds_back_waits_for_its_instances(status):
    description = description_of("g-a1", answer(status, statusReason=FULL), None)
    assert (description.status, description.secondary) == (Status.IN_PROGRESS, SecondaryStatus.PENDING)
    assert (description.name, description.message) == ("g-a1", FULL)


def test_a_job_is_what_its_training_job_is():
    running = training(Status.IN_PROGRESS)
    assert description_of("g-a1", answer("RUNNING"), running) is running
    done = training(Status.COMPLETED)
    assert description_of("g-a1", answer("SUCCEEDED"), done) is done


def test_a_training_job_that_found_no_capacity_does_not_end_a_job_that_goes_on():
    description = description_of("g-a1", answer("RUNNABLE"), training(Status.FAILED))
    assert (description.status, description.secondary) == (Status.IN_PROGRESS, SecondaryStatus.PENDING)


def test_a_job_that_was_given_up_goes_on_as_long_as_its_training_job_stops():
    description = description_of("g-a1", answer("FAILED", isTerminated=True), training(Status.STOPPING))
    assert of_end(description) is None


def test_what_the_queues_own_limit_of_time_ended_found_no_capacity():
    words = "Terminated by JobStateTimeLimit action due to reason: CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
    description = description_of("g-a1", answer("FAILED", isTerminated=True, statusReason=words), None)
    assert of_end(description).ending.name == "CAPACITY"
    assert billed_s(description) == 0


@pytest.mark.parametrize(("wish", "ending"), [("patience", "CAPACITY"), ("user", "STOPPED"), ("", "STOPPED")])
def test_a_job_that_was_ended_while_it_waited_is_stopped_for_the_reason_of_who_ended_it(wish, ending):
    description = description_of("g-a1", answer("FAILED", isTerminated=True, statusReason="no use"), None)
    assert of_end(description, wish).ending.name == ending


def test_the_cost_of_a_job_that_ran_and_whose_training_job_is_gone_is_unknown():
    description = description_of("g-a1", answer("SUCCEEDED", startedAt=1_700_000_001_000), None)
    assert description.status is Status.COMPLETED
    assert billed_s(description) is None


def test_a_job_that_is_listed_has_changed_when_batch_last_did_something_with_it():
    listed = listed_of(answer("RUNNING", scheduledAt=1_700_000_005_000, startedAt=1_700_000_009_000), now=9e9)
    assert (listed.created_s, listed.changed_s, listed.status) == (1.7e9, 1_700_000_009, Status.IN_PROGRESS)


def test_one_that_batch_has_given_up_is_looked_at_again_each_time():
    first, second = (listed_of(answer("FAILED"), now) for now in (1.0, 2.0))
    assert first.seen != second.seen


def test_the_training_job_is_the_one_of_the_latest_attempt():
    resource = {"name": "TrainingJobArn", "value": "arn:aws:sagemaker:us-east-1:1:training-job/AWSBatchx"}
    assert training_job_of(answer("RUNNING", latestAttempt={"serviceResourceId": resource})) == "AWSBatchx"
    assert training_job_of(answer("RUNNABLE", latestAttempt={})) is None
    assert training_job_of(answer("RUNNABLE")) is None

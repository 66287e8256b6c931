"""Service jobs over boto3: each becomes training jobs that really run."""

import json

import pytest
from botocore.exceptions import ClientError

from raysm.local.server.batch.service_operations import ServiceOperations
from tests.support.batch_queues import service_request
from tests.support.sagemaker_server import wait_until

FINAL = ("SUCCEEDED", "FAILED")


def ended(batch, job_id):
    wait_until(lambda: batch.describe_service_job(jobId=job_id)["status"] in FINAL)
    return batch.describe_service_job(jobId=job_id)


def submit(batch, *args, **fields):
    return batch.submit_service_job(**service_request(*args, **fields))["jobId"]


def training_job(told):
    return told["latestAttempt"]["serviceResourceId"]["value"].rpartition("/")[2]


def test_there_is_an_operation_for_all_that_is_asked_of_service_jobs():
    operations = ServiceOperations(None, None, None).operations
    assert {name.removesuffix("s").removesuffix("ServiceJob") for name in operations} == {
        "Submit",
        "Describe",
        "List",
        "Terminate",
        "Update",
    }


def test_a_service_job_is_a_training_job_of_another_name(batch, server):
    told = ended(batch, submit(batch, "hello", "echo hello", tags={"team": "x"}))
    assert (told["status"], told["statusReason"]) == (
        "SUCCEEDED",
        "Received status from SageMaker: Training job completed",
    )
    name = training_job(told)
    assert name.startswith("AWSBatchhello")
    assert server.describe(name)["TrainingJobStatus"] == "Completed"
    assert ("algo-1", "hello") in server.lines(name)


def test_the_same_token_is_the_same_job(batch):
    request = service_request("once", "true", clientToken="token-1")
    first, second = (batch.submit_service_job(**request)["jobId"] for _ in range(2))
    assert first == second
    with pytest.raises(ClientError, match="used for another request"):
        batch.submit_service_job(**service_request("other", "false", clientToken="token-1"))
    ended(batch, first)


def test_a_failed_training_job_is_followed_by_another_one_and_its_reason_is_told(batch):
    told = ended(batch, submit(batch, "broken", "exit 3", retryStrategy={"attempts": 2}))
    assert told["status"] == "FAILED"
    assert "Received status from SageMaker:AlgorithmError" in told["statusReason"]
    names = [one["serviceResourceId"]["value"] for one in told["attempts"]]
    assert len(set(names)) == 2


def test_no_more_instances_are_in_use_than_the_environment_has(batch):
    wide = [submit(batch, f"wide-{number}", "sleep 600", count=2) for number in range(2)]
    wait_until(lambda: batch.describe_service_job(jobId=wide[0])["status"] == "RUNNING")
    assert batch.describe_service_job(jobId=wide[1])["status"] == "RUNNABLE"
    listed = batch.list_service_jobs(jobQueue="training", jobStatus="RUNNABLE")["jobSummaryList"]
    assert [item["jobId"] for item in listed] == [wide[1]]
    batch.terminate_service_job(jobId=wide[1], reason="not needed")
    batch.terminate_service_job(jobId=wide[0], reason="enough")
    told = ended(batch, wide[0])
    assert (told["status"], told["statusReason"], told["isTerminated"]) == ("FAILED", "enough", True)
    assert ended(batch, wide[1])["attempts"] == []


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"queue": "nobody"}, "nobody does not exist"),
        ({"queue": "programs"}, "takes no such jobs"),
        ({"retryStrategy": {"attempts": 11}}, "got 11"),
        ({"quotaShareName": "x"}, "no quota shares"),
        ({"serviceRequestPayload": json.dumps({"TrainingJobName": "x"})}, "roleArn"),
    ],
)
def test_what_cannot_be_is_refused_with_a_client_exception(batch, fields, wrong):
    with pytest.raises(ClientError, match=wrong) as refused:
        submit(batch, **fields)
    assert refused.value.response["Error"]["Code"] == "ClientException"


def test_the_priority_of_a_job_that_waits_can_be_changed(batch):
    job_id = submit(batch, "later", "true", schedulingPriority=3)
    batch.update_service_job(jobId=job_id, schedulingPriority=7)
    assert ended(batch, job_id)["schedulingPriority"] == 7

"""Each region has jobs of its own: the signature of a request says which."""

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.sagemaker_server import training_request


@pytest.fixture(scope="module")
def far(server):
    """SageMaker of another region, at the same endpoint."""
    return boto3.client(
        "sagemaker",
        endpoint_url=server.record.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="eu-west-1",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


def names(client):
    summaries = client.list_training_jobs(NameContains="same", MaxResults=100)["TrainingJobSummaries"]
    return [(summary["TrainingJobName"], summary["TrainingJobArn"].split(":")[3]) for summary in summaries]


def test_a_name_is_one_jobs_in_one_region_alone(server, far):
    server.train("same", "exit 0")
    far.create_training_job(**training_request("same", "exit 3"))
    with pytest.raises(ClientError, match="ResourceInUse"):
        far.create_training_job(**training_request("same", "exit 0"))
    far.get_waiter("training_job_completed_or_stopped").config.delay = 1
    server.ended("same")
    while far.describe_training_job(TrainingJobName="same")["TrainingJobStatus"] == "InProgress":
        server.ask("GET", "/raysm/status")
    assert server.describe("same")["TrainingJobStatus"] == "Completed"
    assert far.describe_training_job(TrainingJobName="same")["TrainingJobStatus"] == "Failed"
    assert names(server.sm) == [("same", "us-east-1")]
    assert names(far) == [("same", "eu-west-1")]


def test_tags_are_of_the_job_whose_arn_is_named(server, far):
    far.create_training_job(**training_request("tagged", "exit 0"))
    arn = far.describe_training_job(TrainingJobName="tagged")["TrainingJobArn"]
    far.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "1"}])
    assert far.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "1"}]


def test_a_job_of_another_region_is_not_found(server, far):
    far.create_training_job(**training_request("far-away", "exit 0"))
    with pytest.raises(ClientError, match="not found"):
        server.sm.stop_training_job(TrainingJobName="far-away")


def test_a_page_of_a_status_is_taken_before_it_is_filtered(server, far):
    for name, code in (("paged-1", 1), ("paged-2", 0), ("paged-3", 0)):
        server.train(name, f"exit {code}")
        server.ended(name)
    first = server.sm.list_training_jobs(NameContains="paged-", StatusEquals="Failed", MaxResults=2)
    assert first["TrainingJobSummaries"] == []
    second = server.sm.list_training_jobs(
        NameContains="paged-", StatusEquals="Failed", MaxResults=2, NextToken=first["NextToken"]
    )
    assert [job["TrainingJobName"] for job in second["TrainingJobSummaries"]] == ["paged-1"]

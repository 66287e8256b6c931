"""What cannot be is refused with AWS's codes and in its words; what is at a limit is not."""

import pytest
from botocore.exceptions import ClientError

from raysm.contract.job_api import TRAINING
from raysm.local.server.validation import ApiError, check, check_rules
from tests.support.api_requests import training_parameters
from tests.support.sagemaker_server import training_request

DAY_S = 86_400
PLAIN = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}


def resources(**fields):
    return {"ResourceConfig": {**PLAIN, **fields}}


REFUSED = {
    "name": ({"TrainingJobName": "a_b"}, "'a_b' at 'trainingJobName'.*regular expression pattern"),
    "instance type": (resources(InstanceType="ml.nonsense"), "satisfy enum value set"),
    "two wrongs": ({"TrainingJobName": "_", "RoleArn": "x" * 30}, "2 validation errors detected"),
    "same tags": ({"Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}, "duplicate tag keys"),
    "no entry point": ({"algorithm": {"ContainerEntrypoint": None}}, "give ContainerEntrypoint"),
    "spot without wait": ({"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds must be present"),
    "checkpoint place": (
        {"CheckpointConfig": {"S3Uri": "s3://bkt/x", "LocalPath": "/elsewhere"}},
        "must lie below /opt/ml",
    ),
}


def request_of(name, fields):
    request = training_request(name, "exit 0", **{"algorithm": {}, **fields})
    return {key: value for key, value in request.items() if value is not None}


@pytest.fixture(scope="module")
def unchecked(server):
    """A client that leaves all checking to the server."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "sagemaker",
        endpoint_url=server.record.url,
        aws_access_key_id="x",
        aws_secret_access_key="x",
        region_name="us-east-1",
        config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
    )


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_a_validation_exception(unchecked, case):
    fields, message = REFUSED[case]
    request = request_of("refused", fields)
    request["AlgorithmSpecification"] = {k: v for k, v in request["AlgorithmSpecification"].items() if v is not None}
    with pytest.raises(ClientError, match=message) as caught:
        unchecked.create_training_job(**request)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


@pytest.mark.parametrize(
    "fields", [{"StoppingCondition": {"MaxRuntimeInSeconds": 28 * DAY_S + 1}}, resources(InstanceCount=241)]
)
def test_what_is_past_an_accounts_limit_is_resource_limit_exceeded(unchecked, fields):
    with pytest.raises(ClientError) as caught:
        unchecked.create_training_job(**request_of("past", fields))
    assert caught.value.response["Error"]["Code"] == "ResourceLimitExceeded"


def test_without_a_server_the_least_request_passes_and_members_of_a_newer_model_do_too():
    check("CreateTrainingJob", training_parameters(OfNextYear={"a": 1}))
    check_rules(TRAINING, training_parameters())


def test_an_instance_type_of_next_year_passes_and_what_has_not_its_form_does_not():
    resources = {"InstanceCount": 1, "VolumeSizeInGB": 1}
    check("CreateTrainingJob", training_parameters(ResourceConfig={**resources, "InstanceType": "ml.p99.2xlarge"}))
    with pytest.raises(ApiError, match="satisfy enum value set"):
        check("CreateTrainingJob", training_parameters(ResourceConfig={**resources, "InstanceType": "p99"}))

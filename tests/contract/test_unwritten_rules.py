import pytest

from raysm.contract.job_api import APIS, PROCESSING, TRAINING
from raysm.contract.service_model import violations
from raysm.contract.unwritten_rules import CHECKS, breaches
from tests.support.api_requests import processing_parameters, training_parameters

DAY_S = 86_400
GROUP = {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 1}
PLAIN = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
SPOT = {"EnableManagedSpotTraining": True, "StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 9}}


def channel(name, *groups):
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/x", "InstanceGroupNames": list(groups)}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def compressed(mode):
    return {**channel("c"), "CompressionType": "Gzip", "InputMode": mode}


def messages(api, **changes):
    base = {TRAINING: training_parameters, PROCESSING: processing_parameters}[api]()
    return [breach.message for breach in breaches(api, {**base, **changes})]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ResourceConfig": {**PLAIN, "InstanceGroups": [GROUP]}}, "not both"),
        ({"ResourceConfig": {"VolumeSizeInGB": 1}}, "are required"),
        ({"ResourceConfig": {"InstanceGroups": [GROUP, GROUP]}}, "distinct names, got a, a"),
        ({"ResourceConfig": {"InstanceGroups": [{**GROUP, "InstanceCount": 0}]}}, "InstanceCount of at least 1"),
        ({"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds must be present"),
        ({**SPOT, "EnableManagedSpotTraining": False}, "only supported when EnableManagedSpotTraining"),
        ({**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 8}}, "(8) must be at least"),
        ({**SPOT, "ResourceConfig": {**PLAIN, "KeepAlivePeriodInSeconds": 1}}, "KeepAlivePeriodInSeconds is not"),
        ({**SPOT, "ResourceConfig": {**PLAIN, "TrainingPlanArn": "x"}}, "TrainingPlanArn is not supported"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 28 * DAY_S + 1}}, "the maximum is 2419200 (28 days)"),
        ({"InputDataConfig": [channel("c"), channel("c")]}, "must be unique, got c, c"),
        ({"InputDataConfig": [channel("..")]}, "a folder's that is there already"),
        ({"InputDataConfig": [channel("c", "b")]}, "'b' is no instance group of this job"),
        ({"InputDataConfig": [compressed("File")]}, "supported in Pipe mode only"),
        (
            {"ResourceConfig": {"InstanceGroups": [GROUP]}, "InputDataConfig": [channel("c", "a"), channel("d")]},
            "either all channels name InstanceGroupNames, or none does",
        ),
        (
            {"RemoteDebugConfig": {"EnableRemoteDebug": True}, "EnableNetworkIsolation": True},
            "EnableRemoteDebug is not supported with EnableNetworkIsolation",
        ),
    ],
)
def test_a_training_job_that_breaks_a_rule_is_told_which(changes, message):
    (told,) = messages(TRAINING, **changes)
    assert message in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ProcessingInputs": [{"InputName": "a", "AppManaged": True}, {"InputName": "a", "AppManaged": True}]},
            "names must be unique, got a, a",
        ),
        ({"ProcessingInputs": [{"InputName": "a", "S3Input": {"S3Uri": "s3://b"}}]}, "needs a LocalPath unless"),
        (
            {
                "ProcessingInputs": [
                    {"InputName": "a", "S3Input": {"LocalPath": "/x", "S3CompressionType": "Gzip"}},
                ]
            },
            "supported in Pipe mode only",
        ),
    ],
)
def test_a_processing_job_that_breaks_a_rule_is_told_which(changes, message):
    (told,) = messages(PROCESSING, **changes)
    assert message in told


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_every_api_has_its_rules_and_a_plain_request_breaks_none(api):
    assert CHECKS[api]
    assert messages(api) == []


def test_only_what_the_account_limits_is_a_quota():
    past = {**training_parameters(), "StoppingCondition": {"MaxRuntimeInSeconds": 28 * DAY_S + 1}}
    assert [breach.is_quota for breach in breaches(TRAINING, past)] == [True]
    without = {**training_parameters(), "ResourceConfig": {}}
    assert [breach.is_quota for breach in breaches(TRAINING, without)] == [False]


def test_how_long_a_processing_job_may_run_stands_in_the_model_itself():
    past = {**processing_parameters(), "StoppingCondition": {"MaxRuntimeInSeconds": 9 * DAY_S + 1}}
    (found,) = violations(PROCESSING.create, past, takes_files=False)
    assert found.most == 9 * DAY_S

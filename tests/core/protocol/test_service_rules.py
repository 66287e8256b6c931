"""Tests of ``raysm.core.protocol.service_rules``: client and embedded server refuse what breaks a rule."""

import re

import pytest

from raysm.core.client.checks import check
from raysm.core.client.plan import Plan
from raysm.core.protocol.job_api import APIS, PROCESSING, TRAINING
from raysm.core.protocol.service_rules import RULES, breaches
from raysm.errors import InvalidRequest
from raysm.local.server.validation import ApiError, check_rules
from raysm.local.server.validation import check as check_on_server
from tests.support.api_requests import processing_parameters, training_parameters

DAY_S = 86_400
GROUP = {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 1}
PLAIN = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
GROUPS = {"InstanceGroups": [GROUP], "VolumeSizeInGB": 1}
PLAN = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"
CHOICE = {
    "InstancePreferences": [{"InstanceType": "ml.c5.large"}],
    "InstanceCount": 1,
    "VolumeSizeInGB": 1,
}
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 9},
}


def channel(name, *groups, uri="s3://b/x", mode="File", kind="S3Prefix"):
    source = {"S3DataType": kind, "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    if groups:
        source["InstanceGroupNames"] = list(groups)
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": mode}


def resources(**fields):
    return {"ResourceConfig": {**PLAIN, **fields}}


def machines(**fields):
    return {"ProcessingResources": {"ClusterConfig": {**PLAIN, **fields}}}


def item(name, **source):
    source = {
        "S3Uri": "s3://b",
        "S3DataType": "S3Prefix",
        "LocalPath": "/opt/ml/processing/x",
    } | source
    return {
        "InputName": name,
        "S3Input": {key: value for key, value in source.items() if value is not None},
    }


TRAININGS = {
    "groups beside a type": ({"ResourceConfig": {**PLAIN, "InstanceGroups": [GROUP]}}, "not both"),
    "no instances": ({"ResourceConfig": {"VolumeSizeInGB": 1}}, "are required"),
    "groups of one name": (
        {"ResourceConfig": {**GROUPS, "InstanceGroups": [GROUP, GROUP]}},
        "distinct names, got a, a",
    ),
    "an empty group": (
        {"ResourceConfig": {**GROUPS, "InstanceGroups": [{**GROUP, "InstanceCount": 0}]}},
        "InstanceCount of at least 1",
    ),
    "too long": (
        {"StoppingCondition": {"MaxRuntimeInSeconds": 28 * DAY_S + 1}},
        "the maximum is 2419200 (28 days)",
    ),
    "spot without a wait": (
        {"EnableManagedSpotTraining": True},
        "MaxWaitTimeInSeconds must be present",
    ),
    "a wait without spot": (
        {**SPOT, "EnableManagedSpotTraining": False},
        "only supported when EnableManagedSpotTraining",
    ),
    "a short wait": (
        {**SPOT, "StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 8}},
        "(8) must be at least",
    ),
    "a warm pool on spot": (
        {**SPOT, **resources(KeepAlivePeriodInSeconds=1)},
        "KeepAlivePeriodInSeconds is not",
    ),
    "a warm pool of groups": (
        {"ResourceConfig": {**GROUPS, "KeepAlivePeriodInSeconds": 1}},
        "KeepAlivePeriodInSeconds is not supported with InstanceGroups",
    ),
    "a choice beside a type": (
        resources(InstancePreferences=[{"InstanceType": "ml.c5.large"}]),
        "either InstancePreferences or InstanceType, not both",
    ),
    "a choice on spot": (
        {**SPOT, "ResourceConfig": CHOICE},
        "InstancePreferences is not supported with",
    ),
    "a choice of one type twice": (
        {"ResourceConfig": {**CHOICE, "InstancePreferences": 2 * CHOICE["InstancePreferences"]}},
        "only once in InstancePreferences, got ml.c5.large, ml.c5.large",
    ),
    "a choice with training plans of two kinds": (
        {
            "ResourceConfig": {
                **CHOICE,
                "TrainingPlanArn": PLAN,
                "InstancePreferences": [
                    {"InstanceType": "ml.c5.large", "TrainingPlanArns": [PLAN]}
                ],
            }
        },
        "either TrainingPlanArn or TrainingPlanArns, not both",
    ),
    "a choice without a number": (
        {
            "ResourceConfig": {
                name: value for name, value in CHOICE.items() if name != "InstanceCount"
            }
        },
        "give InstanceCount once, or with each",
    ),
    "a channel above": (
        {"InputDataConfig": [channel("..")]},
        "a folder of that name exists already",
    ),
    "channels of one name": (
        {"InputDataConfig": [channel("c"), channel("c")]},
        "must be unique, got c, c",
    ),
    "an archive as a file": (
        {"InputDataConfig": [{**channel("c"), "CompressionType": "Gzip"}]},
        "supported in Pipe mode only",
    ),
    "a channel of a group that is not there": (
        {"InputDataConfig": [channel("c", "b")]},
        "'b' is no instance group of",
    ),
    "a channel of no group": (
        {"ResourceConfig": GROUPS, "InputDataConfig": [channel("c", "a"), channel("d")]},
        "either all channels name InstanceGroupNames, or none does",
    ),
    "one object, fast": (
        {"InputDataConfig": [channel("c", uri="s3://b/x/rows.npy", mode="FastFile")]},
        "FastFile takes a prefix, and 's3://b/x/rows.npy' is one object",
    ),
    "a manifest, fast": (
        {
            "InputDataConfig": [
                channel("c", uri="s3://b/manifest", mode="FastFile", kind="ManifestFile")
            ]
        },
        "FastFile takes an S3Prefix, not ManifestFile",
    ),
    "a look into isolation": (
        {"RemoteDebugConfig": {"EnableRemoteDebug": True}, "EnableNetworkIsolation": True},
        "EnableRemoteDebug is not supported with EnableNetworkIsolation",
    ),
    "a key for disks": (
        resources(InstanceType="ml.g5.xlarge", VolumeKmsKeyId="k"),
        "not supported for instance types with local storage (ml.g5.xlarge)",
    ),
    "a key by its alias": (
        resources(VolumeKmsKeyId="alias/mine"),
        "which is an alias; a volume takes only the ID or ARN",
    ),
    "a subnet without its prefix": (
        {"VpcConfig": {"Subnets": ["0a1b"], "SecurityGroupIds": ["sg-1"]}},
        "VpcConfig.Subnets: '0a1b' is not an ID, which begins with subnet-",
    ),
    "a volume larger than the disks": (
        resources(InstanceType="ml.g4dn.xlarge", VolumeSizeInGB=126),
        "VolumeSizeInGB is 126, and ml.g4dn.xlarge has 125 GB",
    ),
    "a tag of AWS's": ({"Tags": [{"Key": "AWS:x", "Value": "1"}]}, "begins with aws:"),
    "tags of one key": (
        {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]},
        "must be unique, got a, a",
    ),
}

PROCESSINGS = {
    "inputs of one name": (
        {"ProcessingInputs": [item("a"), item("a")]},
        "names must be unique, got a, a",
    ),
    "an input without a place": (
        {"ProcessingInputs": [item("a", LocalPath=None)]},
        "needs a LocalPath unless",
    ),
    "a key for disks": (
        machines(InstanceType="ml.p4d.24xlarge", VolumeKmsKeyId="k"),
        "not supported for instance types with local storage",
    ),
    "a key by its alias": (
        machines(VolumeKmsKeyId="arn:aws:kms:eu-west-1:123456789012:alias/mine"),
        "which is an alias; a volume takes only the ID or ARN",
    ),
    "a security group without its prefix": (
        {"NetworkConfig": {"VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["1"]}}},
        "VpcConfig.SecurityGroupIds: '1' is not an ID, which begins with sg-",
    ),
    "a volume larger than the disks": (
        machines(InstanceType="ml.g5.xlarge", VolumeSizeInGB=251),
        "VolumeSizeInGB is 251, and ml.g5.xlarge has 250 GB",
    ),
    "a tag of AWS's": ({"Tags": [{"Key": "aws:x", "Value": "1"}]}, "begins with aws:"),
}

BROKEN = [
    pytest.param(api, {**base(), **changes}, words, id=f"{api.kind}: {name}")
    for api, base, cases in (
        (TRAINING, training_parameters, TRAININGS),
        (PROCESSING, processing_parameters, PROCESSINGS),
    )
    for name, (changes, words) in cases.items()
]


@pytest.mark.parametrize(("api", "request_", "words"), BROKEN)
def test_what_breaks_a_rule_is_refused_by_the_client_and_by_the_embedded_server(
    api, request_, words
):
    assert [words in breach.message for breach in breaches(api, request_)] == [True]
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        check(Plan(api=api, request=request_), takes_files=False)
    check_on_server(api.create, request_)  # else the model says it already, and the rule is none
    with pytest.raises(ApiError, match=re.escape(words)):
        check_rules(api, request_)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_every_rule_is_broken_by_one_of_these_requests(api):
    requests = [case.values[1] for case in BROKEN if case.values[0] is api]
    assert all(any(list(check(request)) for request in requests) for check, _ in RULES[api])


@pytest.mark.parametrize(
    "changes",
    [
        resources(InstanceType="ml.m5.xlarge", VolumeKmsKeyId="k", VolumeSizeInGB=1000),
        resources(InstanceType="ml.g5.xlarge", VolumeSizeInGB=250),
        {
            "ResourceConfig": {
                "InstanceGroups": [
                    GROUP,
                    {**GROUP, "InstanceGroupName": "b", "InstanceType": "ml.g5.xlarge"},
                ],
                "VolumeSizeInGB": 30,
                "VolumeKmsKeyId": "k",
            }
        },
        {
            "InputDataConfig": [
                channel("c", uri="s3://b/v1.2/", mode="FastFile"),
                channel("d", uri="s3://b/x.npy"),
            ]
        },
        {"InputDataConfig": [channel("c", uri="s3://b/rows", mode="FastFile")]},
        {"ResourceConfig": {**GROUPS, "KeepAlivePeriodInSeconds": 0}},
    ],
    ids=[
        "a volume",
        "as much as the disks",
        "a key for one of two groups",
        "folders",
        "a prefix",
        "no warm pool",
    ],
)
def test_what_is_close_to_a_rule_and_breaks_none_passes(changes):
    assert list(breaches(TRAINING, {**training_parameters(), **changes})) == []

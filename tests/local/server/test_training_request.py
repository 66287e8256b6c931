"""CreateTrainingJob, as this machine takes it."""

import pytest

from raysm.local.server.records import JobRecord
from raysm.local.server.training_request import check, define
from raysm.local.server.validation import ApiError
from tests.support.api_requests import training_parameters

ALGORITHM = {"TrainingImage": "image", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}


def request(**fields):
    return training_parameters(**{"AlgorithmSpecification": ALGORITHM, **fields})


def channel(**source):
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/x", **source}
    return {"ChannelName": "x", "DataSource": {"S3DataSource": source}}


def defined(**fields):
    parameters = request(**fields)
    record = JobRecord(
        kind="training", name="a-job", arn="arn", region="r", request=parameters, created_s=1.0, modified_s=1.0
    )
    return define(record)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"AlgorithmSpecification": None}, "AlgorithmSpecification is required"),
        ({"AlgorithmSpecification": {"AlgorithmName": "x"}}, "TrainingImage is required"),
        ({"AlgorithmSpecification": {**ALGORITHM, "TrainingInputMode": "Pipe"}}, "use File or FastFile"),
        ({"AlgorithmSpecification": {**ALGORITHM, "ContainerEntrypoint": None}}, "give ContainerEntrypoint"),
        ({"InputDataConfig": [channel(S3DataType="AugmentedManifestFile")]}, "channel 'x': S3DataType Augmented"),
        ({"InputDataConfig": [{**channel(), "InputMode": "Pipe"}]}, "channel 'x': InputMode Pipe"),
        ({"InputDataConfig": [{"ChannelName": "x", "DataSource": {}}]}, "only S3DataSource"),
        ({"CheckpointConfig": {"S3Uri": "s3://b/c", "LocalPath": "/tmp/c"}}, "must lie below /opt/ml"),
        ({"ResourceConfig": {"InstanceType": "x", "InstanceCount": 10**6}}, "service limit"),
    ],
)
def test_what_is_not_to_be_had_here_is_refused_with_what_is(fields, message):
    with pytest.raises(ApiError, match=message):
        check(request(**fields))


def test_a_model_is_an_archive_unless_the_request_says_otherwise():
    model, data = defined().outputs
    assert (model.uri, model.archive) == ("s3://bucket/out/a-job/output/model.tar.gz", True)
    assert data.uri == "s3://bucket/out/a-job/output/output.tar.gz"
    plain = defined(OutputDataConfig={"S3OutputPath": "s3://bucket/out/", "CompressionType": "NONE"})
    assert [output.uri for output in plain.outputs] == [
        "s3://bucket/out/a-job/output/model",
        "s3://bucket/out/a-job/output/data",
    ]
    assert plain.artifacts == "s3://bucket/out/a-job/output/model"


def test_limits_that_nobody_set_are_none_but_that_of_the_runtime():
    definition = defined(StoppingCondition={})
    assert (definition.max_wait_s, definition.max_pending_s, definition.spot) == (None, None, False)
    assert definition.max_runtime_s > 0
    limited = defined(StoppingCondition={"MaxRuntimeInSeconds": 5, "MaxWaitTimeInSeconds": 9})
    assert (limited.max_runtime_s, limited.max_wait_s) == (5.0, 9.0)


def test_the_instances_of_all_groups_count():
    groups = [{"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": 2} for name in "ab"]
    assert defined(ResourceConfig={"InstanceGroups": groups}).instances == 4

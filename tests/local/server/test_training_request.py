"""CreateTrainingJob, as this machine takes it."""

import pytest

from raysm.local.server.training_request import check, command
from raysm.local.server.validation import ApiError
from tests.support.api_requests import training_parameters

ALGORITHM = {"TrainingImage": "image", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}


def request(**fields):
    return training_parameters(**{"AlgorithmSpecification": ALGORITHM, **fields})


def channel(**source):
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/x", **source}
    return {"ChannelName": "x", "DataSource": {"S3DataSource": source}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"AlgorithmSpecification": None}, "AlgorithmSpecification is required"),
        ({"AlgorithmSpecification": {"AlgorithmName": "x"}}, "TrainingImage is required"),
        (
            {"AlgorithmSpecification": {**ALGORITHM, "TrainingInputMode": "Pipe"}},
            "use File or FastFile",
        ),
        (
            {"InputDataConfig": [channel(S3DataType="AugmentedManifestFile")]},
            "channel 'x': S3DataType Augmented",
        ),
        ({"InputDataConfig": [{**channel(), "InputMode": "Pipe"}]}, "channel 'x': InputMode Pipe"),
        ({"InputDataConfig": [{"ChannelName": "x", "DataSource": {}}]}, "only S3DataSource"),
        (
            {"CheckpointConfig": {"S3Uri": "s3://b/c", "LocalPath": "/tmp/c"}},
            "must lie below /opt/ml",
        ),
        ({"ResourceConfig": {"InstanceType": "x", "InstanceCount": 10**6}}, "service limit"),
    ],
)
def test_what_is_not_to_be_had_here_is_refused_with_what_is(fields, message):
    with pytest.raises(ApiError, match=message):
        check(request(**fields))


def test_an_image_without_an_entry_point_in_the_request_runs_its_own_with_the_argument_train():
    assert command(request(AlgorithmSpecification={"TrainingImage": "image"})) == ("", "train")

"""CreateProcessingJob, as this machine takes it."""

from pathlib import Path, PurePosixPath

import pytest

from raysm.local.server.processing_request import check, define, image, specify
from raysm.local.server.records import JobRecord
from raysm.local.server.validation import ApiError
from tests.support.api_requests import processing_parameters

APP = {"ImageUri": "image", "ContainerEntrypoint": ["python3", "a.py"]}


def request(**fields):
    return processing_parameters(**{"AppSpecification": APP, **fields})


def given(name="x", **source):
    source = {
        "S3Uri": "s3://b/x",
        "LocalPath": "/opt/ml/processing/input/x/",
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        **source,
    }
    return {"InputName": name, "S3Input": source}


def left(name="made", **target):
    target = {"S3Uri": "s3://b/made", "LocalPath": "/opt/ml/processing/made", "S3UploadMode": "EndOfJob", **target}
    return {"OutputName": name, "S3Output": target}


def outputs(*all_of_them, **more):
    return {"ProcessingOutputConfig": {"Outputs": list(all_of_them), **more}}


def record_of(**fields):
    return JobRecord(
        kind="processing",
        name="a-job",
        arn="arn:a-job",
        region="eu-west-1",
        request=request(**fields),
        created_s=1.0,
        modified_s=1.0,
    )


def test_the_least_request_is_taken():
    check(request())
    assert image(request()) == "image"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ProcessingInputs": [{"InputName": "x", "DatasetDefinition": {}}]}, "input 'x': only S3Input"),
        ({"ProcessingInputs": [given(S3DataType="Other")]}, "S3DataType must be S3Prefix or ManifestFile"),
        ({"ProcessingInputs": [given(S3InputMode="Pipe")]}, "Pipe is not available here; use File"),
        ({"ProcessingInputs": [given(LocalPath="/tmp/x")]}, "input 'x': LocalPath.*must lie below /opt/ml/processing"),
        (outputs(left(LocalPath="/opt/ml/model")), "output 'made': LocalPath.*must lie below /opt/ml/processing"),
        (outputs({"OutputName": "made", "FeatureStoreOutput": {}}), "output 'made': only S3Output"),
    ],
)
def test_what_is_not_to_be_had_here_is_refused_with_what_is(fields, message):
    with pytest.raises(ApiError, match=message):
        check(request(**fields))


def test_inputs_and_outputs_are_brought_from_and_to_where_the_request_says():
    definition = define(
        record_of(
            ProcessingInputs=[given(), given("list", S3DataType="ManifestFile")],
            **outputs(left(), KmsKeyId="key"),
            StoppingCondition={"MaxRuntimeInSeconds": 77},
        )
    )
    assert [(source.name, source.uri, source.manifest) for source in definition.sources] == [
        ("x", "s3://b/x", False),
        ("list", "s3://b/x", True),
    ]
    (output,) = definition.outputs
    assert (output.uri, output.place) == ("s3://b/made", PurePosixPath("processing/made"))
    assert (definition.instances, definition.max_runtime_s, definition.kms_key) == (1, 77, "key")


def test_an_input_that_the_program_brings_itself_is_not_brought():
    managed = {"InputName": "own", "AppManaged": True, "S3Input": {"S3Uri": "s3://b/own", "S3DataType": "S3Prefix"}}
    assert define(record_of(ProcessingInputs=[managed, given()])).sources[0].name == "x"


def test_a_job_runs_its_command_where_its_paths_are_asked_for():
    record = record_of(
        ProcessingInputs=[given(S3DataDistributionType="ShardedByS3Key")],
        Environment={"A": "b"},
        **outputs(left()),
    )
    spec = specify(record, None, {"x": (Path("/data"), True)})
    assert (spec.name, spec.region, spec.command) == ("a-job", "eu-west-1", ("python3", "a.py"))
    (channel,) = spec.channels
    assert (channel.name, channel.source, channel.owned, channel.distribution) == (
        "x",
        Path("/data"),
        True,
        "ShardedByS3Key",
    )
    assert spec.place_of(channel) == PurePosixPath("processing/input/x")
    assert dict(spec.outputs) == {"made": PurePosixPath("processing/made")}
    assert dict(spec.environment) == {"A": "b"}


def test_the_file_of_the_job_names_it_and_says_what_the_service_adds():
    description = specify(record_of(ProcessingInputs=[given()]), None, {"x": (Path("/data"), False)}).description
    assert (description["ProcessingJobName"], description["ProcessingJobArn"]) == ("a-job", "arn:a-job")
    assert description["ProcessingInputs"][0]["AppManaged"] is False
    assert description["StoppingCondition"]["MaxRuntimeInSeconds"] > 0

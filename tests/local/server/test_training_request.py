"""CreateTrainingJob, as this machine takes it."""

import pytest

from raysm.errors import InvalidRequest
from raysm.local.server.records import JobRecord
from raysm.local.server.training_request import check, check_kind, define, entrypoint_of, source_of
from raysm.local.server.validation import ApiError
from tests.support.api_requests import training_parameters


def without_entrypoint(hyperparameters=None, environment=None, **algorithm):
    return {
        "AlgorithmSpecification": {"TrainingImage": "image", **algorithm},
        "HyperParameters": hyperparameters or {},
        "Environment": environment or {},
    }


CODE = "s3://bucket/sourcedir.tar.gz"


def test_a_jobs_own_entry_point_counts_whatever_else_it_says():
    own = without_entrypoint(
        {"sagemaker_program": "train.py", "sagemaker_submit_directory": CODE}, ContainerEntrypoint=["sh"]
    )
    assert entrypoint_of(own) == ["sh"]
    assert source_of(own) is None


def test_a_program_among_the_hyperparameters_is_run_as_a_framework_image_runs_it():
    python, program, base = entrypoint_of(without_entrypoint({"sagemaker_program": "train.py"}))
    assert (python, base) == ("python3", "/opt/ml")
    assert program.endswith("/raysm/local/framework_image.py")


def test_a_program_may_be_named_by_a_variable_too_and_its_name_be_json_as_old_sdks_write_it():
    assert entrypoint_of(without_entrypoint(environment={"SAGEMAKER_PROGRAM": "train.py"}))
    assert source_of(without_entrypoint({"sagemaker_submit_directory": f'"{CODE}"'})).uri == CODE


def test_where_nobody_says_there_is_none():
    assert entrypoint_of(without_entrypoint()) is None


def test_code_is_brought_only_from_s3():
    assert source_of(without_entrypoint({"sagemaker_submit_directory": "/opt/ml/input/data/code"})) is None
    assert source_of(without_entrypoint()) is None


def test_in_a_container_nothing_plays_the_image():
    check_kind(without_entrypoint(ContainerEntrypoint=["sh"]), "docker")
    check_kind(without_entrypoint(), "process")
    with pytest.raises(InvalidRequest, match="instances of kind 'docker' need ContainerEntrypoint"):
        check_kind(without_entrypoint(), "docker")


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

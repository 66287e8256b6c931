"""Jobs that leave their main process to the image: what a framework image of AWS would run."""

import pytest

from raysm.errors import InvalidRequest
from raysm.local.server.training_request import check_kind, entrypoint_of, source_of


def request(hyperparameters=None, environment=None, **algorithm):
    return {
        "AlgorithmSpecification": {"TrainingImage": "image", **algorithm},
        "HyperParameters": hyperparameters or {},
        "Environment": environment or {},
    }


CODE = "s3://bucket/sourcedir.tar.gz"


def test_a_jobs_own_entry_point_counts_whatever_else_it_says():
    own = request({"sagemaker_program": "train.py", "sagemaker_submit_directory": CODE}, ContainerEntrypoint=["sh"])
    assert entrypoint_of(own) == ["sh"]
    assert source_of(own) is None


def test_a_program_among_the_hyperparameters_is_run_as_a_framework_image_runs_it():
    python, program, base = entrypoint_of(request({"sagemaker_program": "train.py"}))
    assert (python, base) == ("python3", "/opt/ml")
    assert program.endswith("/raysm/local/framework_image.py")


def test_a_program_may_be_named_by_a_variable_too_and_its_name_be_json_as_old_sdks_write_it():
    assert entrypoint_of(request(environment={"SAGEMAKER_PROGRAM": "train.py"}))
    assert source_of(request({"sagemaker_submit_directory": f'"{CODE}"'})).uri == CODE


def test_where_nobody_says_there_is_none():
    assert entrypoint_of(request()) is None


def test_code_is_brought_only_from_s3():
    assert source_of(request({"sagemaker_submit_directory": "/opt/ml/input/data/code"})) is None
    assert source_of(request()) is None


def test_in_a_container_nothing_plays_the_image():
    check_kind(request(ContainerEntrypoint=["sh"]), "docker")
    check_kind(request(), "process")
    with pytest.raises(InvalidRequest, match="instances of kind 'docker' need ContainerEntrypoint"):
        check_kind(request(), "docker")

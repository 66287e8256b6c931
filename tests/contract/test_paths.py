"""Tests of ``raysm.contract.paths``."""

from pathlib import Path

import pytest

from raysm.contract.job_api import APIS, PROCESSING
from raysm.contract.paths import Paths


def test_a_training_jobs_files_lie_where_sagemaker_puts_them():
    paths = Paths()
    assert paths.resource_config == Path("/opt/ml/input/config/resourceconfig.json")
    assert paths.hyperparameters == Path("/opt/ml/input/config/hyperparameters.json")
    assert paths.input_data_config == Path("/opt/ml/input/config/inputdataconfig.json")
    assert paths.payload == Path("/opt/ml/input/data/raysm")
    assert paths.model == Path("/opt/ml/model")
    assert paths.failure == Path("/opt/ml/output/failure")
    assert paths.checkpoints == Path("/opt/ml/checkpoints")


def test_a_processing_jobs_files_lie_where_sagemaker_puts_them():
    paths = Paths(api=PROCESSING)
    assert paths.resource_config == Path("/opt/ml/config/resourceconfig.json")
    assert paths.description == Path("/opt/ml/config/processingjobconfig.json")
    assert paths.channel("matrix") == Path("/opt/ml/processing/input/matrix")
    assert paths.failure == Path("/opt/ml/output/message")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_recorded_of_finished_work_never_lies_in_what_is_uploaded_as_the_result(api, lasting):
    paths = Paths(api=api)
    records = paths.records(lasting=lasting)
    assert records.is_relative_to(paths.checkpoints) == lasting
    assert not any(records.is_relative_to(output) for output in (paths.model, paths.output_data))


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_the_layout_that_the_service_made_says_of_which_api_the_job_is(tmp_path, api):
    made = Paths(tmp_path, api)
    made.config.mkdir(parents=True)
    for file in (made.resource_config, *filter(None, [made.description])):
        file.write_text("{}")
    assert Paths.found_in(tmp_path) == made
    assert Paths.found_in(tmp_path).api is api

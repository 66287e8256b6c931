"""Operations on jobs, without a server around them."""

from types import SimpleNamespace

import pytest

from raysm.contract.job_api import TRAINING
from raysm.local.server.api_error import ApiError
from raysm.local.server.operations import Operations
from raysm.local.server.records import Records
from tests.support.sagemaker_server import training_request


def test_a_job_that_cannot_be_started_is_not_there(tmp_path):
    records = Records(tmp_path)
    without_s3 = Operations(SimpleNamespace(records=records), "process")
    with pytest.raises(AttributeError, match="moto"):
        without_s3.answer("CreateTrainingJob", training_request("a", "exit 0"), "us-east-1")
    with pytest.raises(ApiError, match="a"):
        records.get(TRAINING, "a")
    assert not (tmp_path / "jobs/training/a").exists()
    assert without_s3.running() == []

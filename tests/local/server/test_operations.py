"""Operations on jobs, without a server around them."""

from random import Random
from types import SimpleNamespace

import pytest

from raysm.contract.home import Clock
from raysm.contract.job_api import TRAINING
from raysm.local.scenario import Scenario
from raysm.local.server.market import Stock
from raysm.local.server.operations import Operations
from raysm.local.server.records import Records
from raysm.local.server.validation import ApiError
from tests.support.sagemaker_server import training_request


def test_a_job_that_cannot_be_started_is_not_there(tmp_path):
    records = Records(tmp_path)
    stock = Stock(Scenario(), records)
    services = SimpleNamespace(records=records, stock=stock, scenario=Scenario(), chance=Random(1))
    without_s3 = Operations(services, "process")
    with pytest.raises(AttributeError, match="moto"):
        without_s3.answer("CreateTrainingJob", training_request("a", "exit 0"), "us-east-1")
    with pytest.raises(ApiError, match="a"):
        records.get(TRAINING, "a")
    assert not (tmp_path / "jobs/training/a").exists()
    assert without_s3.running() == []


def test_where_the_time_passes_faster_what_really_runs_is_refused(tmp_path):
    records = Records(tmp_path, Clock(speed=60.0))
    services = SimpleNamespace(records=records, stock=Stock(Scenario(), records), scenario=Scenario())
    with pytest.raises(ApiError, match="instances of the kind process run in this machine's time"):
        Operations(services, "process").answer("CreateTrainingJob", training_request("a", "exit 0"), "us-east-1")
    with pytest.raises(ApiError):
        records.get(TRAINING, "a")


def test_managed_mlflow_is_refused_with_what_to_use_instead(tmp_path):
    records = Records(tmp_path)
    services = SimpleNamespace(records=records, stock=Stock(Scenario(), records), scenario=Scenario())
    arn = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
    request = training_request("a", "exit 0", MlflowConfig={"MlflowResourceArn": arn})
    with pytest.raises(ApiError, match="does not emulate managed MLflow; leave it out, .* tracking='sqlite:///mlflow"):
        Operations(services, "process").answer("CreateTrainingJob", request, "us-east-1")

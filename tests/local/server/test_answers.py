"""Tests of the module of this name."""

import pytest

from raysm.contract.job_api import APIS, PROCESSING, TRAINING
from raysm.contract.service_model import service_model
from raysm.local.server.answers import describe, summarize
from raysm.local.server.records import JobRecord
from tests.support.api_requests import processing_parameters, training_parameters


def record(api, **fields):
    parameters = {TRAINING: training_parameters, PROCESSING: processing_parameters}[api]()
    arn = api.arn(region="us-east-1", account="123456789012", name="a-job")
    known = {"kind": api.kind, "name": "a-job", "arn": arn, "region": "us-east-1", "request": parameters}
    return JobRecord(**known, created_s=1.0, modified_s=2.0, **fields)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_nothing_is_answered_that_the_api_has_not_and_nothing_is_null(api):
    one = record(api, failure_reason="why", exit_message="what", artifacts="s3://b/m", ended_s=3.0, training_s=1.0)
    described = describe(one)
    assert set(described) <= set(service_model().operation_model(api.describe).output_shape.members)
    assert set(summarize(one)) <= set(service_model().shape_for(api.summary_shape).members)
    assert None not in [*described.values(), *summarize(one).values()]
    assert (described[api.name_key], described[api.arn_key]) == ("a-job", one.arn)


def test_only_a_job_that_has_ended_is_billed_and_at_least_a_second():
    assert "BillableTimeInSeconds" not in describe(record(TRAINING, training_s=9.0))
    assert describe(record(TRAINING, status="Completed", training_s=0.2))["BillableTimeInSeconds"] == 1


def test_what_spot_capacity_saves_is_trained_and_not_billed():
    told = describe(record(TRAINING, status="Completed", training_s=100.0, spot_saving=0.62))
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (100, 38)

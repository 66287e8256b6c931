"""Every sort of plan keeps to SageMaker's model: that of the oldest botocore that raysm admits, and the installed."""

import json

import pytest
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from raysm.core.features import all_paths
from raysm.core.protocol.job_api import APIS
from raysm.core.protocol.service_model import Rule, service_model, violations_in
from tests.oldest_botocore import RECORD
from tests.support.plans import WORKLOADS, plans

RECORDED = json.loads(RECORD.read_text())

MODELS = {"oldest": ServiceModel(RECORDED["model"], "sagemaker"), "installed": service_model()}

PLANS = dict(plans())
NEWER = {"oldest": {"MlflowConfig"}, "installed": set()}
"""What of a request a model does not know yet: with its boto3, a job that has it is refused before
anything is uploaded, with the words that boto3 has to be updated."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_keeps_to_the_model(name, model):
    sent = PLANS[name]
    shape = MODELS[model].operation_model(sent.api.create).input_shape
    newer = {key for key in sent.request if key in NEWER[model]}
    violations = list(violations_in(sent.request, shape, takes_files=False))
    assert {(item.path[-1], item.rule) for item in violations} == {
        (key, Rule.UNKNOWN) for key in newer
    }
    known = {key: value for key, value in sent.request.items() if key not in newer}
    report = ParamValidator().validate(known, shape)
    assert not report.has_errors(), report.generate_report()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_the_model_knows_every_status_key_that_is_read(model, api):
    members = MODELS[model].operation_model(api.describe).output_shape.members
    keys = [
        api.name_key,
        api.arn_key,
        api.status_key,
        api.start_time_key,
        api.end_time_key,
        *api.reason_keys,
    ]
    assert set(keys) <= set(members)


def test_every_sort_of_workload_and_api_is_among_the_plans():
    """Else a kind that is added would be checked against no model."""
    assert set(WORKLOADS) == set(all_paths("kinds"))
    assert {sent.api for sent in PLANS.values()} == set(APIS)

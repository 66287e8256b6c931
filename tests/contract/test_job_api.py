import re
from typing import get_args, get_type_hints

import pytest
from botocore.session import Session

from raysm.contract.job_api import APIS, TRAINING, api_of
from raysm.contract.paths import Paths
from raysm.errors import InvalidRequest
from raysm.request import JobRequest

pytestmark = pytest.mark.smoke

MODEL = Session().get_service_model("sagemaker")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_every_operation_and_key_is_one_of_the_service_model(api):
    operations = [api.create, api.describe, api.stop, api.delete, api.list, *([api.update] if api.update else [])]
    assert set(operations) <= set(MODEL.operation_names)
    described = MODEL.operation_model(api.describe).output_shape.members
    keys = {api.name_key, api.arn_key, api.status_key, api.start_time_key, api.end_time_key, *api.reason_keys}
    assert keys <= set(described)
    assert ("ExitMessage" in described) == api.has_exit_message
    assert ("SecondaryStatus" in described) == api.has_secondary_status
    assert ("CheckpointConfig" in described) == api.has_checkpoints
    assert api.summaries_key in MODEL.operation_model(api.list).output_shape.members
    assert MODEL.shape_for(api.instance_type_shape).enum
    assert api.name_key in MODEL.shape_for(api.summary_shape).members


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_the_way_to_the_instances_is_one_of_the_service_model(api):
    shape = MODEL.operation_model(api.create).input_shape
    for key in api.cluster_keys:
        shape = shape.members[key]
    assert {"InstanceType", "InstanceCount"} <= set(shape.members)
    assert ("InstanceGroups" in shape.members) == api.has_groups


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_an_arn_is_one_that_the_service_takes(api):
    pattern = MODEL.shape_for(f"{api.title}JobArn").metadata["pattern"]
    assert re.fullmatch(pattern, api.arn(region="eu-west-1", account="123456789012", name="a-job"))


def test_a_request_can_ask_for_every_api_and_for_no_other():
    kinds = get_args(get_type_hints(JobRequest)["kind"])
    assert set(kinds) == {api.kind for api in APIS}
    assert [api_of(kind) for kind in kinds] == list(APIS)


def test_a_kind_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(InvalidRequest, match="'training' or 'processing', got 'transform'"):
        api_of("transform")


def test_every_api_has_a_layout_of_its_own_and_training_is_the_usual_one():
    assert len({api.layout for api in APIS}) == len(APIS)
    assert Paths() == Paths(api=TRAINING)

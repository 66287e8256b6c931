"""Tests of ``raysm.contract.job_api``."""

import pytest
from botocore.session import Session

from raysm.contract.job_api import APIS, InputManifest, preferred, selected, settled
from raysm.errors import InvalidInput

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


PLAIN = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
TYPES = [{"InstanceType": "ml.p5.48xlarge"}, {"InstanceType": "ml.p4d.24xlarge"}]
ONE_COUNT = {"InstancePreferences": TYPES, "InstanceCount": 2}
OWN_COUNTS = {
    "InstancePreferences": [{**each, "InstanceCount": count} for count, each in zip((1, 2), TYPES, strict=True)]
}


def test_each_type_has_its_own_number_of_instances_or_that_of_all():
    assert preferred(ONE_COUNT) == (("ml.p5.48xlarge", 2), ("ml.p4d.24xlarge", 2))
    assert preferred(OWN_COUNTS) == (("ml.p5.48xlarge", 1), ("ml.p4d.24xlarge", 2))
    assert preferred(PLAIN) == ()


@pytest.mark.parametrize("resources", [ONE_COUNT, OWN_COUNTS])
def test_it_is_the_first_until_the_service_has_chosen(resources):
    assert settled(resources)["InstanceType"] == "ml.p5.48xlarge"
    chosen = settled(selected(resources, *preferred(resources)[1]))
    assert (chosen["InstanceType"], chosen["InstanceCount"]) == ("ml.p4d.24xlarge", 2)


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG", b"[]", b"{}", b'["a"]', b'[{"prefix": "s3://b/"}]', b'[{"prefix": "s3://b/"}, 1]']
)
def test_what_is_no_manifest_is_refused_with_how_to_write_one(content):
    with pytest.raises(
        InvalidInput, match=r's3://b/m is not a manifest. Write a JSON list with at least one name, \[\{"prefix"'
    ):
        InputManifest.of(content, "s3://b/m")

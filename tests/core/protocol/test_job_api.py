"""The API of jobs, its model, and its types of instances."""

import pytest
from botocore.session import Session

from raysm.core.protocol.instance_types import gpu_count, has_local_storage, local_storage_gb
from raysm.core.protocol.job_api import APIS, InputManifest, preferred, selected, settled
from raysm.core.protocol.service_model import Entry, Key, Rule, compiled, violations
from raysm.errors import InvalidInput
from tests.support.api_requests import training_parameters

pytestmark = pytest.mark.smoke

MODEL = Session().get_service_model("sagemaker")


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_every_operation_and_key_is_one_of_the_service_model(api):
    operations = [
        api.create,
        api.describe,
        api.stop,
        api.delete,
        api.list,
        *([api.update] if api.update else []),
    ]
    assert set(operations) <= set(MODEL.operation_names)
    described = MODEL.operation_model(api.describe).output_shape.members
    keys = {
        api.name_key,
        api.arn_key,
        api.status_key,
        api.start_time_key,
        api.end_time_key,
        *api.reason_keys,
    }
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
    "InstancePreferences": [
        {**each, "InstanceCount": count} for count, each in zip((1, 2), TYPES, strict=True)
    ]
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
    "content",
    [
        b"",
        b"\x89PNG",
        b"[]",
        b"{}",
        b'["a"]',
        b'[{"prefix": "s3://b/"}]',
        b'[{"prefix": "s3://b/"}, 1]',
    ],
)
def test_what_is_no_manifest_is_refused_with_how_to_write_one(content):
    with pytest.raises(InvalidInput, match=r"s3://b/m is not a manifest"):
        InputManifest.of(content, "s3://b/m")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ml.p3.16xlarge", 8),
        ("ml.g5.12xlarge", 4),
        ("ml.p6-b200.48xlarge", 8),
        ("ml.m5.large", 0),
        ("local", 0),
    ],
)
def test_an_instance_has_the_gpus_that_its_page_tells(name, count):
    assert gpu_count(name) == count


@pytest.mark.parametrize(
    ("name", "has_disks"),
    [
        *(
            (name, True)
            for name in ("g4dn.xlarge", "g5.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "m5d.large")
        ),
        *(
            (name, True)
            for name in ("c6gd.large", "p6-b200.48xlarge", "p6e-gb200.36xlarge", "g7e.2xlarge")
        ),
        *(
            (name, False)
            for name in ("m8i-flex.large", "c5.xlarge", "r9i.large", "p3.2xlarge", "inf2.xlarge")
        ),
        # A family that came after these tables.
        *((name, None) for name in ("p9-c400.48xlarge", "g12.xlarge", "trn9.48xlarge")),
    ],
)
def test_whether_a_type_has_disks_of_its_own_follows_from_its_family_or_is_unknown(name, has_disks):
    assert has_local_storage(f"ml.{name}") is has_disks


def test_the_room_on_all_disks_of_an_instance_is_told_where_it_is_known():
    assert local_storage_gb("ml.g4dn.xlarge") == 125
    assert local_storage_gb("ml.g5.48xlarge") == 7600
    assert local_storage_gb("ml.m5d.large") is None


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r".+", "two\nlines", False),
        (r".*", "two\nlines", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "größe: 日本_1", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "a#b", False),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws-cn1:x", True),
        (
            r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*",
            "what Python cannot say\n",
            True,
        ),
    ],
)
def test_a_pattern_of_the_api_matches_as_it_does_there(pattern, text, matches):
    assert bool(compiled(pattern).fullmatch(text)) is matches


def broken(takes_files=False, operation="CreateTrainingJob", **changes):
    return list(
        violations(operation, {**training_parameters(), **changes}, takes_files=takes_files)
    )


def places_and_rules(found):
    return [(item.path, item.rule) for item in found]


def test_every_violation_is_found_with_its_place_and_what_the_model_says():
    found = broken(
        RoleArn=None,
        Nonsense=1,
        TrainingJobName="a_b",
        ResourceConfig={"InstanceType": "ml.none", "InstanceCount": 1, "VolumeSizeInGB": -1},
        StoppingCondition={"MaxRuntimeInSeconds": "soon"},
        Environment={"1": "v" * 513},
    )
    assert sorted(places_and_rules(found), key=str) == sorted(
        [
            (("RoleArn",), Rule.MISSING),
            (("Nonsense",), Rule.UNKNOWN),
            (("TrainingJobName",), Rule.PATTERN),
            (("ResourceConfig", "InstanceType"), Rule.VALUES),
            (("ResourceConfig", "VolumeSizeInGB"), Rule.LEAST),
            (("StoppingCondition", "MaxRuntimeInSeconds"), Rule.TYPE),
            (("Environment", Key("1")), Rule.PATTERN),
            (("Environment", Entry("1")), Rule.MOST),
        ],
        key=str,
    )
    most = next(item for item in found if item.rule is Rule.MOST)
    assert (most.size, most.most, most.type_name) == (513, 512, "string")
    assert "ml.m5.large" in next(item for item in found if item.rule is Rule.VALUES).values


@pytest.mark.parametrize("key", ["OutputDataConfig", "CheckpointConfig"])
def test_a_file_is_taken_for_a_place_in_s3_only_where_the_target_takes_files(key):
    place = {"OutputDataConfig": "S3OutputPath", "CheckpointConfig": "S3Uri"}[key]
    assert broken(takes_files=True, **{key: {place: "file:///data"}}) == []
    assert places_and_rules(broken(**{key: {place: "file:///data"}})) == [
        ((key, place), Rule.PATTERN)
    ]

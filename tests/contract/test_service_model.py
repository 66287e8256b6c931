"""Tests of ``raysm.contract.service_model``."""

import datetime

import pytest
from botocore.model import ServiceModel

from raysm.contract.service_model import TYPES, Entry, Key, Rule, compiled, service_model, violations, violations_in
from tests.support.api_requests import training_parameters


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r".+", "one line", True),
        (r".+", "two\nlines", False),
        (r".*", "two\nlines", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "größe: 日本_1", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "a#b", False),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws-cn1:x", True),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws_cn:x", False),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "what Python cannot say\n", True),
    ],
)
def test_a_pattern_of_the_api_matches_as_it_does_there(pattern, text, matches):
    assert bool(compiled(pattern).fullmatch(text)) is matches


def broken(takes_files=False, operation="CreateTrainingJob", **changes):
    return list(violations(operation, {**training_parameters(), **changes}, takes_files=takes_files))


def places_and_rules(found):
    return [(item.path, item.rule) for item in found]


def test_a_request_that_keeps_to_the_model_has_no_violation():
    assert broken() == []


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


def test_a_value_of_the_wrong_type_is_not_looked_into():
    assert places_and_rules(broken(Environment=["A"])) == [(("Environment",), Rule.TYPE)]


def test_the_way_into_a_list_is_its_index():
    tags = [{"Key": "a", "Value": "v"}, {"Key": "a#", "Value": "v"}]
    assert places_and_rules(broken(Tags=tags)) == [(("Tags", 1, "Key"), Rule.PATTERN)]


@pytest.mark.parametrize("key", ["OutputDataConfig", "CheckpointConfig"])
def test_a_file_is_taken_for_a_place_in_s3_only_where_the_target_takes_files(key):
    place = {"OutputDataConfig": "S3OutputPath", "CheckpointConfig": "S3Uri"}[key]
    assert broken(takes_files=True, **{key: {place: "file:///data"}}) == []
    assert places_and_rules(broken(**{key: {place: "file:///data"}})) == [((key, place), Rule.PATTERN)]


def test_a_file_is_nowhere_else_taken():
    assert places_and_rules(broken(takes_files=True, RoleArn="file:///etc/passwd-and-more"))[0][0] == ("RoleArn",)


MODEL = {
    "metadata": {"apiVersion": "1", "protocol": "json", "serviceFullName": "x"},
    "operations": {"Try": {"name": "Try", "input": {"shape": "Input"}}},
    "shapes": {
        "Input": {"type": "structure", "members": {name.lower(): {"shape": name} for name in "FDTN"}},
        "F": {"type": "float", "min": 0, "max": 1},
        "D": {"type": "double"},
        "T": {"type": "timestamp"},
        "N": {"type": "integer", "max": 3},
    },
}


@pytest.fixture
def small_walk():
    """The walk over a model that has the types which Create's do not."""
    shape = ServiceModel(MODEL, "small").operation_model("Try").input_shape
    return lambda value: places_and_rules(violations_in(value, shape, takes_files=False))


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({"f": 0.5, "d": 1, "t": 1700000000.5, "n": -3}, None),
        ({"t": datetime.datetime.now(datetime.UTC)}, None),
        ({"f": 1.5}, Rule.MOST),
        ({"f": -0.1}, Rule.LEAST),
        ({"f": "0.5"}, Rule.TYPE),
        ({"d": True}, Rule.TYPE),
        ({"t": "yesterday"}, Rule.TYPE),
        ({"n": 1.5}, Rule.TYPE),
        ({"n": 4}, Rule.MOST),
    ],
)
def test_fractions_and_times_are_checked_by_their_own_types(small_walk, value, rule):
    assert [found for _, found in small_walk(value)] == ([] if rule is None else [rule])


def test_every_type_of_the_requests_that_are_served_is_known():
    kinds = set()

    def walk(shape, seen):
        if shape.name not in seen:
            seen.add(shape.name)
            kinds.add(shape.type_name)
            inner = getattr(shape, "members", {}).values()
            inner = [*inner, *(getattr(shape, name) for name in ("member", "key", "value") if hasattr(shape, name))]
            for other in inner:
                walk(other, seen)

    operations = [name for name in service_model().operation_names if name.endswith(("TrainingJob", "ProcessingJob"))]
    for operation in [*operations, "ListTrainingJobs", "ListProcessingJobs", "AddTags"]:
        walk(service_model().operation_model(operation).input_shape, set())
    assert kinds <= set(TYPES)

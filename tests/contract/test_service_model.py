"""Tests of ``raysm.contract.service_model``."""

import pytest

from raysm.contract.service_model import Entry, Key, Rule, compiled, violations
from tests.support.api_requests import training_parameters


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r".+", "two\nlines", False),
        (r".*", "two\nlines", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "größe: 日本_1", True),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "a#b", False),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws-cn1:x", True),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "what Python cannot say\n", True),
    ],
)
def test_a_pattern_of_the_api_matches_as_it_does_there(pattern, text, matches):
    assert bool(compiled(pattern).fullmatch(text)) is matches


def broken(takes_files=False, operation="CreateTrainingJob", **changes):
    return list(violations(operation, {**training_parameters(), **changes}, takes_files=takes_files))


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
    assert places_and_rules(broken(**{key: {place: "file:///data"}})) == [((key, place), Rule.PATTERN)]

"""Ranges: what lies where, by each scale, and what is no range."""

import math

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.ranges import combinations, read_ranges
from tests.support.tuning import categorical, continuous, integer


def read(kind, *items):
    return read_ranges({f"{kind}ParameterRanges": list(items)})


def the(kind, item):
    return read(kind, item)[0]


def test_the_ends_of_a_range_are_its_bounds_in_every_scale():
    for scale in ("Linear", "Logarithmic", "ReverseLogarithmic", "Auto"):
        parameter = the("Continuous", continuous("m", 0.9, 0.999, scale))
        assert (float(parameter.at(0)), float(parameter.at(1))) == (pytest.approx(0.9), pytest.approx(0.999))
        assert 0.9 <= float(parameter.at(0.5)) <= 0.999


@pytest.mark.parametrize(
    ("scale", "middle"),
    [("Linear", 0.50005), ("Logarithmic", 0.01), ("Auto", 0.01)],
)
def test_the_middle_is_the_middle_of_the_scale(scale, middle):
    assert float(the("Continuous", continuous("lr", 1e-4, 1, scale)).at(0.5)) == pytest.approx(middle)


def test_auto_is_linear_where_the_bounds_are_near_each_other_or_touch_zero():
    assert float(the("Continuous", continuous("a", 1, 3)).at(0.5)) == pytest.approx(2)
    assert float(the("Continuous", continuous("a", 0, 1000)).at(0.5)) == pytest.approx(500)


def test_the_reverse_logarithmic_scale_is_fine_near_one():
    momentum = the("Continuous", continuous("m", 0.9, 0.9999, "ReverseLogarithmic"))
    assert float(momentum.at(0.5)) == pytest.approx(1 - math.sqrt(0.1 * 0.0001))


@pytest.mark.parametrize("scale", ["Linear", "Logarithmic"])
def test_a_value_and_its_point_belong_together(scale):
    for kind, item in (("Continuous", continuous("a", 1, 50, scale)), ("Integer", integer("a", 1, 50, scale))):
        parameter = the(kind, item)
        for point in (0.0, 0.2, 0.7, 1.0):
            value = parameter.at(point)
            assert parameter.at(parameter.point(value)) == value


def test_each_whole_number_of_a_linear_range_has_the_same_share():
    depth = the("Integer", integer("depth", 1, 4, "Linear"))
    drawn = [depth.at((number + 0.5) / 400) for number in range(400)]
    assert {value: drawn.count(value) for value in drawn} == dict.fromkeys("1234", 100)


def test_a_choice_is_one_of_its_values_at_every_point():
    kind = the("Categorical", categorical("kind", "a", "b", "c"))
    assert [kind.at(point) for point in (0, 0.34, 0.67, 1)] == ["a", "b", "c", "c"]
    assert kind.at(kind.point("b")) == "b"


def test_what_lies_outside_has_no_point():
    assert the("Continuous", continuous("a")).point("1.5") is None
    assert the("Continuous", continuous("a")).point("much") is None
    assert the("Integer", integer("a")).point("1.5") is None
    assert the("Categorical", categorical("a", "x")).point("y") is None


def test_combinations_are_counted_and_numbers_without_end_are_infinite():
    choices = read_ranges({"CategoricalParameterRanges": [categorical("a", "1", "2")]})
    numbers = read_ranges({"IntegerParameterRanges": [integer("b", 1, 5)]})
    assert combinations([*choices, *numbers]) == 10
    assert combinations(read("Continuous", continuous("lr"))) == math.inf


@pytest.mark.parametrize(
    ("kind", "item", "words"),
    [
        ("Continuous", continuous("lr", 0, 1, "Logarithmic"), "takes values greater than 0"),
        ("Continuous", continuous("m", 0.5, 1, "ReverseLogarithmic"), "takes values from 0 to less than 1"),
        ("Continuous", continuous("lr", 2, 1), "the smaller one first"),
        ("Continuous", continuous("lr", "low", 1), "give two numbers"),
        ("Integer", integer("n", 1.5, 3), "give whole numbers"),
        ("Integer", integer("n", 1, 3, "ReverseLogarithmic"), "not supported for the integer"),
        ("Categorical", categorical("k", "a", "a"), "has a value twice"),
    ],
    ids=["log of 0", "reverse of 1", "backwards", "text", "broken", "reverse integer", "twice"],
)
def test_what_is_no_range_is_refused(kind, item, words):
    with pytest.raises(ApiError, match=words):
        read(kind, item)


def test_two_ranges_of_one_name_and_automatic_ones_are_refused():
    with pytest.raises(ApiError, match="'a' has more than one range"):
        read_ranges({"CategoricalParameterRanges": [categorical("a", "1")], "IntegerParameterRanges": [integer("a")]})
    with pytest.raises(ApiError, match="AutoParameters are not available here"):
        read_ranges({"AutoParameters": [{"Name": "a", "ValueHint": "1"}]})

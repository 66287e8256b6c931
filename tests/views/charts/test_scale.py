"""Axes: which values are marked, how they are written, and where they lie."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.views.charts.scale import elapsed, linear, logarithmic, text_width


def labels(scale):
    return [label for _, label in scale.ticks]


def test_marks_are_numbers_that_people_add_up():
    assert labels(linear([0.0, 1.0], 6)) == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert labels(linear([3, 97], 5)) == ["0", "25", "50", "75", "100"]
    assert labels(linear([-1, 1], 3)) == ["-1", "0", "1"]


def test_an_axis_goes_from_mark_to_mark():
    scale = linear([3, 97], 5)
    assert (scale.low, scale.high) == (0, 100)
    assert [scale.place(value) for value in (0, 50, 100)] == [0, 0.5, 1]


def test_large_numbers_are_short():
    assert labels(linear([0, 40_000], 5)) == ["0", "10k", "20k", "30k", "40k"]
    assert labels(linear([0, 2.5e9], 6)) == ["0", "500M", "1.0G", "1.5G", "2.0G", "2.5G"]


def test_small_numbers_are_told_apart():
    assert labels(linear([0.0001, 0.0003], 5)) == ["0.0001", "0.00015", "0.0002", "0.00025", "0.0003"]
    assert labels(linear([0, 4e-7], 5)) == ["0", "1e-07", "2e-07", "3e-07", "4e-07"]


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0], [0.0], [1e17, 1e17 + 16], [-3e-320]])
def test_one_value_alone_lies_in_the_middle(values):
    scale = linear(values, 5)
    assert scale.low < scale.high
    for value in values:
        assert 0.2 < scale.place(value) < 0.8


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20), st.integers(2, 12))
def test_every_value_has_its_place_and_no_two_marks_read_alike(values, most):
    scale = linear(values, most)
    assert all(-1e-6 <= scale.place(value) <= 1 + 1e-6 for value in values)
    assert 1 <= len(scale.ticks) <= most + 3
    assert len(set(labels(scale))) == len(scale.ticks)


def test_a_duration_is_marked_in_its_largest_unit():
    assert labels(elapsed([0.0], 4)) == ["0 s"]
    assert labels(elapsed([0, 90], 4)) == ["0 s", "50 s"]
    assert labels(elapsed([0, 600], 6)) == ["0 min", "2 min", "4 min", "6 min", "8 min", "10 min"]
    assert labels(elapsed([0, 3 * 86400], 4)) == ["0 d", "1 d", "2 d", "3 d"]


def test_a_logarithmic_axis_has_powers_of_ten_and_no_place_for_zero():
    scale = logarithmic([0.002, 50], 10)
    assert labels(scale) == ["0.001", "0.01", "0.1", "1", "10", "100"]
    assert scale.place(0.001) == 0
    assert math.isclose(scale.place(0.1), 0.4)
    assert math.isnan(scale.place(0))
    assert len(logarithmic([1e-300, 1e300], 5).ticks) <= 6
    assert labels(logarithmic([], 5)) == ["1", "10"]


def test_wide_characters_are_wider():
    assert text_width("", 10) == 0
    assert text_width("損失", 10) == 20 > text_width("ab", 10)

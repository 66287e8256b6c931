"""Curves, and how many of their points are drawn."""

import math

from hypothesis import given
from hypothesis import strategies as st

from raysm.views.charts.series import segments, thinned


def test_a_value_that_is_not_finite_is_a_gap():
    points = [(0, 1.0), (1, math.nan), (2, 2.0), (3, 3.0), (4, math.inf)]
    assert list(segments(points)) == [[(0, 1.0)], [(2, 2.0), (3, 3.0)]]
    assert list(segments([])) == []


def test_few_points_stay_as_they_are():
    points = [(step, float(step)) for step in range(10)]
    assert thinned(points, 10) == points


def test_of_many_points_the_one_peak_stays():
    points = [(step, 0.0) for step in range(100_000)]
    points[54_321] = (54_321, 9.0)
    points[777] = (777, -9.0)
    fewer = thinned(points, 400)
    assert len(fewer) <= 400
    assert {(54_321, 9.0), (777, -9.0)} < set(fewer)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=200), st.integers(4, 50))
def test_ends_and_extremes_stay_in_their_order(values, most):
    points = list(enumerate(values))
    fewer = thinned(points, most)
    assert len(fewer) <= max(most, 4)
    assert fewer == sorted(fewer)
    assert {points[0], points[-1]} <= set(fewer)
    assert {min(values), max(values)} <= {value for _, value in fewer}

"""Durations and rates in the words of people, and the pauses between two looks."""

import pytest

from raysm.client.units import duration, rate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.6, "1 min 0 s"),
        (88, "1 min 28 s"),
        (7.3e6, "2,027 h 46 min"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (1.0, "1 trials/s"),
        (1 / 40, "1.5 trials/min"),
        (1 / 7200, "0.5 trials/h"),
    ],
)
def test_a_rate_is_told_by_the_shortest_span_in_which_there_is_one(per_s, text):
    assert rate(per_s, "trials") == text

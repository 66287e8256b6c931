"""Durations and rates in the words of people, and the pauses between two looks."""

import itertools

import pytest

from raysm.client.targets.connection import Polling
from raysm.client.units import duration, rate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (59.6, "1 min 0 s"),
        (88, "1 min 28 s"),
        (3600, "1 h 0 min"),
        (7.3e6, "2,027 h 46 min"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (10.4, "10 trials/s"),
        (1.0, "1 trials/s"),
        (1 / 40, "1.5 trials/min"),
        (1 / 90, "40 trials/h"),
        (1 / 7200, "0.5 trials/h"),
    ],
)
def test_a_rate_is_told_by_the_shortest_span_in_which_there_is_one(per_s, text):
    assert rate(per_s, "trials") == text


def test_pauses_grow_up_to_their_limit_and_never_end():
    assert list(itertools.islice(Polling(first_s=1, most_s=3, growth=2).pauses(), 5)) == [1, 2, 3, 3, 3]


def test_a_log_of_many_streams_is_looked_at_less_often_and_yet_it_is():
    polling = Polling(first_s=1, most_s=3, stream_s=0.5)
    assert [polling.between_looks(2.0, streams) for streams in (0, 4, 16, 1000)] == [2.0, 2.0, 8.0, 20.0]
    assert Polling(first_s=1, most_s=3).between_looks(0.1, 1000) == 0.1

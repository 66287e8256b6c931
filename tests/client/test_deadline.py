"""Seconds that somebody is willing to wait are numbers, or refused where they are given."""

import math
import time

import pytest

from raysm.client.units import deadline
from raysm.errors import InvalidRequest


def test_none_is_without_end():
    assert deadline(None) == math.inf


def test_seconds_are_counted_from_now():
    before = time.monotonic()
    assert before + 10 <= deadline(10) <= time.monotonic() + 10


def test_what_is_no_number_is_refused_with_the_value_and_what_was_meant():
    with pytest.raises(InvalidRequest, match=r"^timeout is a number of seconds, got '60'; write 60$"):
        deadline("60", "; write 60")

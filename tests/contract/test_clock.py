"""A clock that runs as fast as it is told, from the moment at which it began."""

import time

import pytest

from raysm.contract.clock import Clock
from raysm.errors import InvalidRequest


def test_by_default_it_is_this_machines():
    before = time.time()
    assert before <= Clock().now() <= time.time()
    assert Clock().takes_s(3.0) == 3.0


def test_a_fast_one_tells_more_seconds_than_pass():
    begun_s = time.time() - 10.0
    told_s = Clock(speed=60.0, begun_s=begun_s).now() - begun_s
    assert 600.0 <= told_s <= 60.0 * (time.time() - begun_s)
    assert Clock(speed=60.0).takes_s(3600.0) == 60.0


def test_it_sleeps_for_its_own_seconds():
    began = time.monotonic()
    Clock(speed=1e6).sleep(3600.0)
    Clock().sleep(-1.0)
    assert time.monotonic() - began < 3600.0


def test_one_that_stands_still_is_refused():
    with pytest.raises(InvalidRequest, match="above 0, got 0"):
        Clock(speed=0.0)

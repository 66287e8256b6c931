"""Buckets: how many calls they grant, how they slow down and recover, and that processes share them."""

import pytest

from raysm.grid.limiter import FLOOR, Bucket, Limiter, Rate

ONE = {"list": Rate(per_s=1.0, burst=5)}


@pytest.fixture
def limiter():
    limiter = Limiter(":memory:", ONE)
    yield limiter
    limiter.close()


def test_a_new_bucket_has_one_call_and_no_burst(limiter):
    assert limiter.take("r", "list", 0.0, 10) == 1
    assert limiter.take("r", "list", 0.0) == 0


def test_calls_come_back_with_time_up_to_the_burst(limiter):
    limiter.take("r", "list", 0.0)
    assert limiter.wait_s("r", "list", 0.0) == pytest.approx(1.0)
    assert limiter.take("r", "list", 3.0, 10) == 3
    assert limiter.take("r", "list", 1_000.0, 100) == 5


def test_regions_and_accounts_have_buckets_of_their_own(tmp_path):
    first, second = (Limiter(tmp_path / "b.db", ONE, account=account) for account in "12")
    assert [limiter.take(region, "list", 0.0) for limiter in (first, second) for region in "ab"] == [1, 1, 1, 1]
    assert first.take("a", "list", 0.0) == 0


def test_two_processes_share_a_bucket(tmp_path):
    first, second = Limiter(tmp_path / "b.db", ONE), Limiter(tmp_path / "b.db", ONE)
    assert first.take("r", "list", 0.0) + second.take("r", "list", 0.0) == 1


def test_a_refusal_halves_the_rate_down_to_a_floor(limiter):
    limiter.throttled("r", "list", 0.0)
    assert limiter.wait_s("r", "list", 0.0) == pytest.approx(2.0)
    for _ in range(20):
        limiter.throttled("r", "list", 0.0)
    assert limiter.wait_s("r", "list", 0.0) == pytest.approx(1 / FLOOR)


def test_quiet_minutes_bring_the_rate_back_to_its_cap_and_no_further():
    slow = Bucket(rate=0.5, tokens=0, at_s=0)
    assert slow.at(120, Rate(per_s=1.0)).rate == pytest.approx(0.7)
    assert slow.at(10_000, Rate(per_s=1.0)).rate == 1.0


def test_a_clock_that_is_set_back_neither_gives_nor_takes(limiter):
    limiter.take("r", "list", 10_000.0)
    assert limiter.take("r", "list", 10.0) == 0
    assert limiter.take("r", "list", 11.0) == 1


def test_calls_that_were_not_made_are_given_back(limiter):
    limiter.take("r", "list", 0.0)
    limiter.give_back("r", "list", 1, 0.0)
    assert limiter.take("r", "list", 0.0) == 1


def test_to_ask_for_calls_takes_none(limiter):
    assert limiter.calls("r", "list", 0.0) == 1
    assert limiter.take("r", "list", 0.0) == 1
    assert (limiter.calls("r", "list", 0.0), limiter.calls("r", "list", 2.5)) == (0, 2)

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


class Service:
    """Answers so many calls a second, and refuses all others."""

    def __init__(self, rate):
        self.rate, self.left, self.at_s, self.answered, self.refused = rate, 1.0, 0.0, 0, 0

    def answers(self, now):
        self.left, self.at_s = min(max(1.0, self.rate), self.left + (now - self.at_s) * self.rate), now
        if self.left < 1:
            self.refused += 1
            return False
        self.left, self.answered = self.left - 1, self.answered + 1
        return True


def used(limiter, rate, hours, began=0.0):
    """Return the share of what a service allows that is used by who calls whenever the bucket lets him."""
    service, now, end = Service(rate), began, began + hours * 3600
    service.at_s = began
    while now < end:
        if limiter.take("r", "list", now) and not service.answers(now):
            limiter.throttled("r", "list", now)
        now += max(limiter.wait_s("r", "list", now), 0.05)
    return service.answered / (rate * hours * 3600), service.refused / (service.answered + service.refused)


@pytest.mark.parametrize("rate", [0.2, 0.35, 0.5, 0.9])
def test_of_what_the_service_allows_nine_tenths_are_used_and_few_calls_are_refused(limiter, rate):
    share, refused = used(limiter, rate, hours=2)
    assert share >= 0.9
    assert refused <= 0.1


def test_a_rate_that_the_service_raises_is_found_again(limiter):
    used(limiter, 0.2, hours=1)
    assert used(limiter, 0.8, hours=3, began=3600.0)[0] >= 0.8


def test_who_called_seldom_is_not_slowed_down_to_how_seldom_he_called(limiter):
    for hour in range(1, 20):
        assert limiter.take("r", "list", hour * 3600.0)
    limiter.throttled("r", "list", 20 * 3600.0)
    assert limiter.wait_s("r", "list", 20 * 3600.0) <= 2.0

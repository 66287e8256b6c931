"""Buckets: how many calls they grant, how they recover and are shared."""

from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from raysm.features.grid.limiter import Limiter, Rate

ONE = {"list": Rate(per_s=1.0, burst=5)}


@pytest.fixture
def limiter():
    limiter = Limiter(":memory:", ONE)
    yield limiter
    limiter.close()


def test_regions_and_accounts_have_buckets_of_their_own(tmp_path):
    first, second = (Limiter(tmp_path / "b.db", ONE, account=account) for account in "12")
    assert [
        limiter.take(region, "list", 0.0) for limiter in (first, second) for region in "ab"
    ] == [1, 1, 1, 1]
    assert first.take("a", "list", 0.0) == 0


def test_two_processes_share_a_bucket(tmp_path):
    first = Limiter(tmp_path / "b.db", ONE)
    second = Limiter(tmp_path / "b.db", ONE)
    assert first.take("r", "list", 0.0) + second.take("r", "list", 0.0) == 1


class WatchedRate:
    """A rate that is read after a bucket and before its change is written; ``on_read`` is called then, once."""

    burst = 5.0

    def __init__(self, on_read):
        self._on_read = on_read

    @property
    def per_s(self):
        on_read = self._on_read
        self._on_read = None
        if on_read is not None:
            on_read()
        return 1.0


def test_a_call_that_one_process_takes_is_not_taken_by_another_one_meanwhile(tmp_path):
    second = Limiter(tmp_path / "b.db", ONE)
    with ThreadPoolExecutor(1) as pool:
        meanwhile = []

        def take():
            meanwhile.append(pool.submit(second.take, "r", "list", 0.0))
            # It has to wait until the first one's change is written.
            wait(meanwhile, timeout=0.2)

        first = Limiter(tmp_path / "b.db", {"list": WatchedRate(take)})
        assert first.take("r", "list", 0.0) + meanwhile[0].result() == 1
    first.close()
    second.close()


def test_a_clock_that_is_set_back_neither_gives_nor_takes(limiter):
    limiter.take("r", "list", 10_000.0)
    assert limiter.take("r", "list", 10.0) == 0
    assert limiter.take("r", "list", 11.0) == 1


class Service:
    """Answers so many calls a second, ``burst`` of them at once after a while without any, and refuses all others."""

    def __init__(self, rate, burst=1.0, began=0.0):
        self.rate = rate
        self.burst = burst
        self.left = burst
        self.at_s = began
        self.answered = self.refused = 0

    def answers(self, now):
        self.left = min(max(1.0, self.burst), self.left + (now - self.at_s) * self.rate)
        self.at_s = now
        if self.left < 1:
            self.refused += 1
            return False
        self.left = self.left - 1
        self.answered = self.answered + 1
        return True


def used(limiter, rate, hours, began=0.0, burst=1.0, look_s=0.25):
    """Return the part of what a service allows that is used by who looks whether he may call, and what is refused."""
    service = Service(rate, burst, began)
    now = began
    end = began + hours * 3600
    while now < end:
        if limiter.take("r", "list", now) and not service.answers(now):
            limiter.throttled("r", "list", now)
        now += max(limiter.wait_s("r", "list", now), look_s)
    return service.answered / (rate * hours * 3600), service.refused / (
        service.answered + service.refused
    )


@pytest.mark.parametrize("burst", [1, 20])
@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_of_what_the_service_allows_nine_tenths_are_used_and_few_calls_are_refused(
    limiter, rate, burst
):
    # From the first call on, with all that has to be learned; and then for long.
    part, refused = used(limiter, rate, hours=1 / 3, burst=burst)
    assert part >= 0.9
    assert refused <= 0.06
    part, refused = used(limiter, rate, hours=2, began=1200.0, burst=burst)
    assert part >= 0.95
    assert refused <= 0.03


def test_a_rate_that_the_service_raises_is_found_again(limiter):
    used(limiter, 0.2, hours=1)
    assert used(limiter, 0.8, hours=1, began=3600.0)[0] >= 0.8
    assert used(limiter, 0.8, hours=2, began=7200.0)[0] >= 0.95


def test_a_rate_that_others_take_their_part_of_is_left_to_them_at_once(limiter):
    used(limiter, 0.8, hours=1)
    part, refused = used(limiter, 0.2, hours=1, began=3600.0)
    assert part >= 0.9
    assert refused <= 0.05


def test_calls_come_again_after_a_clock_was_set_back_also_if_nobody_takes_one(tmp_path):
    limiter = Limiter(tmp_path / "rates.db", {"create": Rate(per_s=1, burst=1)})
    assert limiter.take("us-east-1", "create", 5000.0) == 1
    # Placement only asks how long to wait, and takes a call once that is over.
    assert limiter.wait_s("us-east-1", "create", 1000.0) > 0
    assert limiter.wait_s("us-east-1", "create", 1010.0) == 0
    limiter.close()

"""Places and regions after refusals: how long they are left alone, and what is learned of them."""

import pytest

from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.capacity import (
    back_off_place,
    back_off_region,
    learn_quota,
    read_market,
    record_answer,
    record_start,
)
from raysm.features.grid.endings import ENDINGS, Verdict
from raysm.features.grid.limiter import Limiter, Rate
from raysm.features.grid.market import Place, Quota

PLACE = Place(region="r", instance_type="ml.m5.large")
NO_CAPACITY = Verdict(ending=ENDINGS["CAPACITY"], reason="CapacityError")


@pytest.fixture
def buckets():
    buckets = Limiter(":memory:", {"create": Rate(per_s=0.5)})
    yield buckets
    buckets.close()


def attempt(**changes):
    values = {
        "row_key": "t",
        "number": 1,
        "name": "a1",
        "region": "r",
        "instance_type": "ml.m5.large",
        "count": 2,
    }
    return Attempt(**values | changes)


def test_a_place_that_refuses_is_left_alone_the_longer_the_oftener(store, buckets):
    now = 0.0
    pauses = []
    for _ in range(8):
        back_off_place(store, attempt(), NO_CAPACITY, now)
        until = read_market(store, buckets, [], now).blocked[PLACE]
        pauses.append(round((until - now) / 60))
        now = until
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_region_that_fails_for_months_is_left_alone_for_the_longest_backoff(store, buckets):
    now = 0.0
    for _ in range(1_100):
        back_off_region(store, "r", "Could not connect", now)
        last_s, now = now, read_market(store, buckets, [], now).closed["r"]
    assert now - last_s == 600.0


def test_a_place_that_refuses_again_after_days_is_left_alone_for_a_minute(store, buckets):
    now = 0.0
    for _ in range(9):
        back_off_place(store, attempt(), NO_CAPACITY, now)
        now = read_market(store, buckets, [], now).blocked[PLACE]
    now += 3 * 24 * 3600
    back_off_place(store, attempt(), NO_CAPACITY, now)
    assert read_market(store, buckets, [], now).blocked == {PLACE: now + 60.0}


def test_a_service_error_blocks_from_the_second_in_a_row(store, buckets):
    verdict = Verdict(ending=ENDINGS["SERVICE"], reason="InternalServerError")
    back_off_place(store, attempt(), verdict, 0.0)
    assert read_market(store, buckets, [], 0.0).blocked == {}
    back_off_place(store, attempt(), verdict, 1.0)
    assert read_market(store, buckets, [], 1.0).blocked == {PLACE: 61.0}


def test_a_quota_is_learned_with_what_others_use_of_it(store, buckets):
    store.attempts.insert(attempt(name="ours", row_key="other", count=1))
    words = (
        "service limit 'ml.m5.large for training job usage' is 4 Instances, with current utilization of 3 Instances "
        "and a request delta of 2 Instances"
    )
    store.attempts.insert(attempt())
    learn_quota(store, attempt(), words, 5.0)
    assert read_market(store, buckets, [], 5.0).quotas == {
        PLACE: Quota(limit=4, used_by_others=2, source="error")
    }


def test_a_region_that_does_not_answer_is_left_alone_until_it_takes_a_job(store, buckets):
    back_off_region(store, "r", "Could not connect", 0.0)
    assert read_market(store, buckets, [], 1.0).closed == {"r": 15.0}
    back_off_region(store, "r", "Could not connect", 15.0)
    record_answer(store, "r")
    assert read_market(store, buckets, [], 16.0).closed == {"r": 45.0}
    record_answer(store, "r", opens=True)
    assert read_market(store, buckets, [], 17.0).closed == {}


def held(store, buckets):
    return read_market(store, buckets, [], 0.0).held.get(PLACE)


def running(store, name, count=1):
    store.attempts.insert(attempt(name=name, row_key=name, count=count, state=AttemptState.RUNNING))


def test_a_refusal_tells_how_much_a_place_has_for_the_grid_and_a_start_that_it_has_more(
    store, buckets
):
    assert held(store, buckets) is None
    running(store, "a", 4)
    back_off_place(store, attempt(), NO_CAPACITY, 0.0)
    assert held(store, buckets) == 4
    running(store, "b", 2)
    record_start(store, attempt(name="b", state=AttemptState.RUNNING))
    assert held(store, buckets) == 6


def test_a_refused_request_for_more_does_not_lower_what_a_place_has(store, buckets):
    running(store, "a", 4)
    back_off_place(store, attempt(), NO_CAPACITY, 0.0)
    (running_one,) = store.attempts.open()
    store.attempts.move(running_one, 1.0, state=AttemptState.ENDED)
    store.attempts.insert(attempt(name="b", row_key="b", count=3, state=AttemptState.PENDING))
    back_off_place(store, attempt(), NO_CAPACITY, 1.0)
    assert held(store, buckets) == 4
    # It had four, and now refuses one of two.
    store.attempts.move(store.attempts.find("b"), 2.0, state=AttemptState.ENDED)
    back_off_place(store, attempt(), NO_CAPACITY, 2.0)
    assert held(store, buckets) == 0


def test_a_region_that_a_clock_closed_in_the_future_is_open_once_the_clock_is_set_back(
    store, buckets
):
    back_off_region(store, "r", "Could not connect", 10_000.0)
    assert "r" in read_market(store, buckets, [], 10_001.0).closed
    assert "r" not in read_market(store, buckets, [], 2_800.0).closed
    back_off_region(store, "r", "Could not connect", 2_801.0)
    assert "r" in read_market(store, buckets, [], 2_802.0).closed

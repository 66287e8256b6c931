"""Which place each row would run in, for display."""

import random

from raysm.grid.assignment import assign
from raysm.grid.estimates import WAIT_S
from raysm.grid.place import Market, Offer, Place, Quota
from raysm.grid.placement import Cheapest
from raysm.grid.task import Task
from tests.support.cpu import counted


def offers(*prices, kind="ml.g5.xlarge"):
    return [
        Offer(place=Place(region=f"us-east-{number}", instance_type=kind), usd_per_hour=usd, price_version="v1")
        for number, usd in enumerate(prices, 1)
    ]


def rows(*seconds, **more):
    return [Task(key=str(row), position=row, expected_s=each, **more) for row, each in enumerate(seconds)]


def quotas(places, *limits):
    pairs = zip(places, limits, strict=False)
    return Market(quotas={offer.place: Quota(limit=limit) for offer, limit in pairs if limit is not None})


def test_every_row_is_in_its_cheapest_place_in_the_order_of_the_rows():
    made = assign(rows(3600, 7200), Cheapest(offers=offers(2.0, 1.0)))
    assert [each.task.key for each in made] == ["0", "1"]
    assert {each.offer.place.region for each in made} == {"us-east-2"}
    assert [each.worth.usd for each in made] == [1.0, 2.0]
    assert [each.end_s for each in made] == [3600 + WAIT_S, 7200 + WAIT_S]


def test_rows_queue_for_the_quota_of_their_place():
    (place,) = offers(1.0)
    made = assign(rows(1000, 1000, 1000), Cheapest(offers=[place]), quotas([place], 2))
    assert sorted(each.start_s for each in made) == [0, 0, 1000 + WAIT_S]


def test_a_job_of_several_instances_takes_as_many_of_the_quota():
    (place,) = offers(1.0)
    made = assign(rows(1000, 1000, count=2), Cheapest(offers=[place]), quotas([place], 3))
    assert sorted(each.start_s for each in made) == [0, 1000 + WAIT_S]
    assert {each.count for each in made} == {2}


def test_a_row_that_can_run_nowhere_says_why_of_every_place():
    places = offers(1.0, 2.0)
    (one,) = assign(rows(60, count=5), Cheapest(offers=places), quotas(places, 4, 0))
    assert one.offer is None
    assert one.end_s is None
    assert one.count == 0
    assert list(one.reasons.values()) == [
        "the quota leaves 4 of ml.g5.xlarge, and the job takes 5",
        "the quota leaves 0 of ml.g5.xlarge, and the job takes 5",
    ]


def test_what_others_use_of_a_quota_is_not_ours():
    (place,) = offers(1.0)
    market = Market(quotas={place.place: Quota(limit=4, used_by_others=3)})
    made = assign(rows(100, 100), Cheapest(offers=[place]), market)
    assert sorted(each.start_s for each in made) == [0, 100 + WAIT_S]


def test_a_row_of_unknown_time_has_no_end_and_a_higher_priority_comes_first():
    (place,) = offers(1.0)
    (late, soon) = assign(
        [Task(key="a", position=0), Task(key="b", position=1, priority=5)],
        Cheapest(offers=[place]),
        quotas([place], 1),
    )
    assert late.end_s is None
    assert (soon.start_s, late.start_s) == (0, WAIT_S)


def test_ten_thousand_rows_and_forty_places_take_less_than_three_seconds_of_cpu():
    chance = random.Random(5)
    places = [
        Offer(
            place=Place(region=f"us-east-{region}", instance_type=f"ml.a{kind}.large"),
            usd_per_hour=chance.uniform(1, 9),
        )
        for region in range(1, 5)
        for kind in range(10)
    ]
    market = quotas(places, *(chance.randint(5, 50) for _ in places))
    tasks = rows(*(chance.uniform(60, 7200) for _ in range(10_000)))
    with counted() as used:
        made = assign(tasks, Cheapest(offers=places), market)
    assert used.seconds < 3
    assert all(each.offer is not None for each in made)

"""All rows at once: near the best that there is, fast, and honest about rows that can run nowhere."""

import itertools
import random
from dataclasses import replace

import pytest

from raysm.grid.assignment import assign
from raysm.grid.attempt import Attempt
from raysm.grid.experience import WAIT_S
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


def cost(made, waiting):
    return sum(each.worth.score(waiting)[1] + each.start_s * waiting / 3600 for each in made)


def brute_force(tasks, placement, market):
    """Return the cost of the best of all assignments, each simulated by itself."""
    ordered = sorted(tasks, key=lambda task: (-task.priority, -task.expected_s, task.position))
    waiting, best = placement.waiting_usd_per_hour, float("inf")
    worths = [[placement.worth(task, offer) for offer in placement.offers] for task in ordered]
    limits = [market.quotas[offer.place].limit for offer in placement.offers]
    for places in itertools.product(range(len(placement.offers)), repeat=len(ordered)):
        free = [[0.0] * limit for limit in limits]
        total = 0.0
        for row, place in enumerate(places):
            worth = worths[row][place]
            start_s = min(free[place])
            free[place].remove(start_s)
            free[place].append(start_s + worth.seconds + worth.wait_s)
            total += worth.score(waiting)[1] + start_s * waiting / 3600
            if total >= best:
                break
        else:
            best = total
    return best


def random_case(chance, apart):
    number = chance.randint(2, 3)
    most = 12 if number == 2 else 8
    tasks = rows(*(chance.uniform(60, 7200) for _ in range(chance.randint(1, most))))
    places = offers(*(chance.uniform(0.1, 5) for _ in range(number)))
    market = quotas(places, *(chance.randint(1, 3) for _ in places))
    placement = Cheapest(offers=places, waiting_usd_per_hour=chance.choice([0.1, 1.0, 5.0]))
    if apart:
        # Data that cost something on their way, and places of which one has been seen to let its jobs wait for longer.
        placement.move_data = True
        homes = [offer.place.region for offer in places]
        tasks = [replace(task, region=chance.choice(homes), input_bytes=chance.randrange(50 * 10**9)) for task in tasks]
        for offer in places:
            region, kind = offer.place.region, offer.place.instance_type
            seen = Attempt(
                task="a", number=1, name="a", region=region, instance_type=kind, count=1, sent_s=0.0,
                started_s=chance.uniform(60, 3600),
            )  # fmt: skip
            placement.learn(tasks[0], seen)
    return tasks, placement, market


@pytest.mark.parametrize("apart", [False, True], ids=["alike", "apart"])
@pytest.mark.parametrize(("cases", "seed"), [(60, 1), pytest.param(500, 2, marks=pytest.mark.soak)])
def test_what_is_planned_costs_at_most_a_twentieth_more_than_the_best_of_all(cases, seed, apart):
    chance = random.Random(seed)
    worst = 0.0
    for _ in range(cases):
        tasks, placement, market = random_case(chance, apart)
        made = cost(assign(tasks, placement, market), placement.waiting_usd_per_hour)
        worst = max(worst, made / brute_force(tasks, placement, market))
    assert worst <= 1.05


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

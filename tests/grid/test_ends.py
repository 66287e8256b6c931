"""That every grid ends, or says what it waits for: places that have nothing, quotas of others, refusals, a budget."""

import random

import pytest

from raysm.errors import ServiceError
from raysm.grid.endings import ENDINGS
from raysm.grid.place import Offer, Place
from raysm.grid.placement import Cheapest
from raysm.grid.task import Rules, Task
from tests.support.grid_world import Behaviour
from tests.support.grids import TYPE, Bench

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
BEGIN_S = 1_800_000_000.0

PATIENT = Rules(brake=0, give_up_s=HOUR_S)
"""As the rules are by default, but for a day, which is 10,000 steps."""

DENIED = ServiceError("create: AccessDeniedException: not authorized to perform", code="AccessDeniedException")


def rows_in(region, rows, **more):
    return [
        Task(key=f"row-{number}", position=number, max_runtime_s=7200, region=region, **more) for number in range(rows)
    ]


def priced(regions, **more):
    offers = [
        Offer(place=Place(region=name, instance_type=TYPE), usd_per_hour=each.usd_per_hour)
        for name, each in regions.items()
    ]
    return Cheapest(offers=offers, **more)


def test_rows_that_may_go_nowhere_else_are_given_up_together_with_the_words_of_the_place(tmp_path):
    regions = {"full": Behaviour(capacity=0, start_s=60)}
    bench = Bench(tmp_path, regions=regions, tasks=rows_in("full", 40), rules=PATIENT)
    took_s = bench.run()
    assert bench.states() == {"failed": 40}
    assert HOUR_S < took_s < 3 * HOUR_S
    assert {record.reason for record in bench.store.tasks("failed")} == {
        "given up: for 1 h no place took a job (ml.m5.large in full: CapacityError: Unable to provision requested ML "
        "compute capacity. Please retry.); give more types or regions, or wait"
    }
    # One an hour at most asks whether there is any: each is a call of a rate that all grids of the account share.
    assert len(bench.store.attempts()) < 60


def test_a_row_whose_instances_are_taken_away_each_time_is_not_paid_for_without_end(tmp_path):
    # A place that gives them is none that refuses: what bounds those never comes.
    taken = {"row-0": "InsufficientInstanceCapacity: the instances were taken back"}
    bench = Bench(tmp_path, regions={"fickle": Behaviour(fails=taken)}, tasks=rows_in("fickle", 2))
    bench.run()
    assert bench.states() == {"done": 1, "failed": 1}
    assert len(bench.store.attempts("row-0")) == ENDINGS["CAPACITY"].max_started == 8
    assert "8 jobs ended like this after their instances had started" in bench.store.task("row-0").reason


def test_of_a_row_that_was_asked_for_again_the_jobs_before_do_not_count(tmp_path):
    fickle = Behaviour(fails={"row-0": "InsufficientInstanceCapacity: the instances were taken back"})
    bench = Bench(tmp_path, regions={"fickle": fickle}, tasks=rows_in("fickle", 1))
    bench.run()
    assert bench.store.again(["failed"], bench.clock.now) == 1
    bench.run()
    assert bench.states() == {"failed": 1}
    assert len(bench.store.attempts("row-0")) == 16
    fickle.fails.clear()
    bench.store.again(["failed"], bench.clock.now)
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 1}


def test_credentials_that_are_refused_for_long_end_a_grid(tmp_path):
    bench = Bench(tmp_path, regions={"shut": Behaviour(refusal=DENIED)}, tasks=rows_in(None, 8), rules=PATIENT)
    took_s = bench.run()
    assert bench.states() == {"failed": 8}
    assert took_s < 3 * HOUR_S
    assert "not authorized" in bench.store.task("row-7").reason


def test_a_laptop_that_slept_for_days_gives_nothing_up_for_it(tmp_path):
    bench = Bench(tmp_path, regions={"full": Behaviour(capacity=0)}, tasks=rows_in("full", 4), rules=PATIENT)
    while len(bench.store.attempts()) < 6:
        bench.step()
    bench.clock.now += 3 * DAY_S
    while len(bench.store.attempts()) < 9:
        bench.step()
    assert "failed" not in bench.states()


def test_under_a_budget_a_place_without_a_price_takes_nothing_and_the_others_are_waited_for(tmp_path):
    regions = {"unlisted": Behaviour(usd_per_hour=None), "full": Behaviour(capacity=0)}
    placement = priced(regions)
    rules = Rules(brake=0, give_up_s=HOUR_S, budget_usd=1e6)
    bench = Bench(tmp_path, regions=regions, tasks=rows_in(None, 4), placement=placement, rules=rules)
    bench.run(most_s=2 * DAY_S)
    assert bench.states() == {"failed": 4}
    assert bench.regions["unlisted"].calls["create"] == 0


def scenario(seed):
    """Return a bench's parts by chance, and moments at which a user stops the grid, or has its rows tried again."""
    chance = random.Random(seed)
    regions = {
        name: Behaviour(
            start_s=chance.choice((5, 240, 900)),
            run_s=chance.choice((60, 600, 7000)),
            capacity=chance.choice((0, 0, 1, 3, 10**9)),
            quota=chance.choice((0, 1, 4, 10**9)),
            others=(chance.choice((0, 0, 4)), 2e9),
            usd_per_hour=chance.choice((1.0, 5.0)),
            lost=chance.choice((0, 0, 0.2)),
            refusal=chance.choice((None, None, None, DENIED)),
            silent=chance.choice(((), (), ((BEGIN_S, BEGIN_S + 8 * HOUR_S),), ((BEGIN_S + 300, BEGIN_S + 2000),))),
            fails={"share:0.2": "AlgorithmError: exit code: 1"},
        )
        for name in ("us-east-1", "eu-west-1", "eu-north-1")[: chance.choice((1, 2, 3))]
    }
    tasks = [
        Task(
            key=f"row-{number}",
            position=number,
            region=chance.choice((None, *regions)),
            count=chance.choice((None, 1, 2)),
            max_runtime_s=7200,
        )
        for number in range(chance.choice((3, 12)))
    ]
    rules = Rules(
        brake=chance.choice((0, 2)),
        retries=1,
        parallel=chance.choice((2, 50)),
        budget_usd=chance.choice((None, 3.0, 40.0, 1e6)),
        give_up_s=HOUR_S,
        patience_s=600,
    )
    placement = priced(regions) if chance.random() < 0.5 else None
    wishes = {chance.randrange(1, 200): chance.choice(("stopping", "again")) for _ in range(chance.choice((0, 1, 2)))}
    return regions, tasks, rules, placement, wishes


@pytest.mark.parametrize(
    "seed", [1, 2, 3, 5, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 4, *range(6, 40)))]
)
def test_no_row_waits_where_nothing_will_ever_change(tmp_path, seed):
    regions, tasks, rules, placement, wishes = scenario(seed)
    bench = Bench(tmp_path, regions=regions, tasks=tasks, rules=rules, placement=placement)
    for step in range(200):
        if not bench.step():
            break
        if wishes.get(step) == "stopping":
            bench.store.change_grid("stopping", bench.clock.now, fenced=False)
        elif wishes.get(step) == "again":
            bench.store.again(["failed", "stopped"], bench.clock.now)
    bench.run(most_s=4 * DAY_S)
    grid, states = bench.store.grid(), bench.states()
    # Over, or paused with what it waits for in words.
    assert grid.state == "closed" and not {"waiting", "placed"} & states.keys() or grid.state == "paused" and grid.why
    assert all(record.reason for state in ("failed", "impossible") for record in bench.store.tasks(state))
    bench.judge(ended=grid.state == "closed")
    if rules.budget_usd is not None:
        assert sum(region.usd() for region in bench.regions.values()) <= rules.budget_usd + 1e-9


def test_a_place_without_a_price_is_taken_once_the_others_have_refused_for_an_hour(tmp_path):
    regions = {"full": Behaviour(capacity=0), "unlisted": Behaviour(usd_per_hour=None)}
    bench = Bench(tmp_path, regions=regions, tasks=rows_in(None, 4), placement=priced(regions))
    assert HOUR_S < bench.run() < 4 * HOUR_S
    assert bench.states() == {"done": 4}

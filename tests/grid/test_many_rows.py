"""What is promised of grids of a thousand rows and more, in numbers, under a virtual clock."""

from datetime import date

import pytest

from raysm.client.costs.prices import PriceTable, RegionPrices
from raysm.grid.capacity import set_quota
from raysm.grid.filling import Template
from raysm.grid.grid_request import GridRequest
from raysm.grid.place import Offer, Place, Quota
from raysm.grid.placement import Cheapest, offers_of
from raysm.grid.plan import plan_grid
from raysm.grid.rows.source import source_of
from raysm.grid.task import Rules, Task
from raysm.request import AWS, Script
from tests.support.grid_world import Behaviour
from tests.support.grids import TYPE, Bench

USD = {"us-east-1": 1.0, "us-west-2": 1.1, "eu-west-1": 8.0, "eu-central-1": 9.0}
TABLE = PriceTable.of(
    [RegionPrices(region=name, as_of="2026-11-01", version="v1", usd={TYPE: usd}) for name, usd in USD.items()]
)


def cheapest(move_data=False):
    return Cheapest(offers=offers_of(list(USD), [TYPE], TABLE), move_data=move_data)


def at_home(count, input_bytes=10**9):
    """Return rows of which each has its data in one of the four regions."""
    homes = list(USD)
    return [
        Task(
            key=f"row-{number}", position=number, region=homes[number % 4], input_bytes=input_bytes, max_runtime_s=7200
        )
        for number in range(count)
    ]


def away(bench):
    """Return how many jobs ran in another region than that of their row's data."""
    homes = {record.task.key: record.task.region for record in bench.store.tasks()}
    return sum(homes[life.task] != name for name, region in bench.regions.items() for life in region.lives.values())


def troubled(folder, tasks, move_data):
    """Run rows where two regions are eight times as dear, one of them has little, and the other is silent for long."""
    regions = {name: Behaviour(usd_per_hour=usd) for name, usd in USD.items()}
    regions["eu-west-1"] = Behaviour(usd_per_hour=USD["eu-west-1"], capacity=40)
    regions["eu-central-1"] = Behaviour(usd_per_hour=USD["eu-central-1"], silent=((1_800_000_300.0, 1_800_002_000.0),))
    rules = Rules(brake=0, parallel=1000, give_up_s=30 * 86_400)
    bench = Bench(folder, tasks=tasks, regions=regions, rules=rules, placement=cheapest(move_data))
    bench.run()
    bench.judge()
    assert bench.states() == {"done": len(tasks)}
    return bench


@pytest.mark.parametrize("rows", [80, pytest.param(1000, marks=pytest.mark.soak)])
def test_of_many_rows_none_leaves_the_region_of_its_data(tmp_path, rows):
    assert away(troubled(tmp_path, at_home(rows), move_data=False)) == 0


def _of_one_price():
    return [Offer(place=Place(region=name, instance_type=TYPE), usd_per_hour=1.0) for name in USD]


def _rows(count):
    return [Task(key=f"row-{number}", position=number, max_runtime_s=7200) for number in range(count)]


def test_the_next_place_is_chosen_within_a_second_of_the_error_that_was_seen(tmp_path):
    # Of one price: a row rather waits a little for a far cheaper place than to go at once. One says it of a job that it
    # took, the other one refuses the very call.
    regions = {name: Behaviour() for name in USD}
    regions["us-east-1"], regions["us-west-2"] = Behaviour(capacity=0), Behaviour(quota=0)
    bench = Bench(tmp_path, tasks=_rows(40), regions=regions, placement=Cheapest(offers=_of_one_price()))
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 40}
    # By when its end was seen, which is up to a pause between two looks after it was.
    refused_s, waits_s = {}, []
    for event in bench.store.events(limit=10_000):
        if event.attempt:
            continue
        if (event.was, event.now) == ("placed", "waiting"):
            refused_s[event.task] = event.at_s
        elif event.now == "placed" and event.task in refused_s:
            waits_s.append(event.at_s - refused_s.pop(event.task))
    assert len(waits_s) > 10
    assert max(waits_s) <= 1
    assert {"CAPACITY", "QUOTA"} <= {attempt.ending for attempt in bench.store.attempts()}


@pytest.mark.long
def test_of_quotas_that_were_read_before_no_call_ever_asks_for_more(tmp_path):
    limits = dict(zip(USD, (3, 7, 12, 20), strict=True))
    regions = {name: Behaviour(usd_per_hour=usd, spread=0.5, quota=limits[name]) for name, usd in USD.items()}
    tasks = [
        Task(key=f"row-{number}", position=number, count=1 + number % 5, max_runtime_s=7200) for number in range(25)
    ]
    rules = Rules(brake=0, parallel=1000, give_up_s=30 * 86_400)
    bench = Bench(tmp_path, tasks=tasks, regions=regions, rules=rules, placement=cheapest())
    with bench.store.database.transaction("quotas", fenced=False):
        for name, limit in limits.items():
            place = Place(region=name, instance_type=TYPE)
            set_quota(bench.store, place, Quota(limit=limit, source="api"), bench.clock.now)
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 25}
    assert [region.calls["create"] for region in bench.regions.values()] == [
        len(region.lives) for region in bench.regions.values()
    ]


@pytest.mark.long
def test_what_a_plan_says_is_within_a_tenth_of_the_books_where_the_times_are_known(tmp_path):
    template = Template(workload=Script("train.py"), target=AWS(role="arn:aws:iam::1:role/r"), options={})
    rows = source_of([{"key": f"row-{number}", "expected_s": 900, "max_runtime_s": 7200} for number in range(100)])
    request = GridRequest(
        name="g", template=template, source=rows, regions=tuple(USD), instance_types=(TYPE,), rules=Rules(brake=0)
    )
    # Quotas send half of them to the dear regions; and what a row takes scatters by a fifth about what it says.
    quotas = {Place(region=name, instance_type=TYPE): Quota(limit=20) for name in USD}
    tasks = request.tasks()
    low, high = plan_grid(request, tasks, TABLE, quotas, today=date(2026, 11, 22)).usd
    regions = {name: Behaviour(usd_per_hour=usd, run_s=900, spread=0.2, quota=20) for name, usd in USD.items()}
    bench = Bench(tmp_path, tasks=tasks, regions=regions, placement=cheapest())
    bench.run()
    bench.judge()
    books = sum(region.usd() for region in bench.regions.values())
    assert bench.states() == {"done": 100}
    assert 0.9 * low <= books <= 1.1 * high
    assert high <= 1.1 * low

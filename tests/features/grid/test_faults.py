"""The controller is killed, and the service misbehaves: no row is lost, no two jobs of one live, the books agree."""

import contextlib
import random
import sqlite3
from datetime import date

import pytest

from raysm.core.client.costs.prices import PriceTable, RegionPrices
from raysm.core.request import AWS
from raysm.errors import ServiceError
from raysm.features.grid.capacity import set_quota
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.market import Offer, Place, Quota
from raysm.features.grid.placement import Placement, offers_of
from raysm.features.grid.plan import plan_grid
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.store.database import LeaseLost
from raysm.features.grid.template import Template
from raysm.features.script.request import Script
from tests.support.grid_world import CAPACITY_ERROR, Behaviour
from tests.support.grids import TYPE, Bench, Killed

BEGIN = 1_800_000_000.0


def hostile(seed):
    """Return regions that lose answers, land calls late, fail jobs, refuse capacity and go silent."""
    chance = random.Random(seed)
    begin = 1_800_000_000.0
    return {
        "us-east-1": Behaviour(
            spread=0.5,
            run_s=300,
            lost=chance.uniform(0, 0.3),
            late=chance.uniform(0, 0.2),
            capacity=chance.choice([3, 10, 10**6]),
            fails={
                "share:0.1": "AlgorithmError: exit code: 1",
                "row-1": "AlgorithmError: exit code: 2",
            },
            usd_per_hour=3.6,
        ),
        "eu-west-1": Behaviour(
            spread=0.9,
            run_s=500,
            lost=0.1,
            quota=chance.choice([2, 8]),
            fails={
                "share:0.2": CAPACITY_ERROR,
                "row-2": "InternalServerError: We encountered an internal error.",
            },
            silent=((begin + 400, begin + 400 + chance.choice([0, 600])),),
            usd_per_hour=1.23,
            billed=0.4,
        ),
    }


class Chance:
    """Kills at random points, so many times."""

    def __init__(self, seed, kills, share):
        self.left = kills
        self._share = share
        self._chance = random.Random(seed)

    def __call__(self, point):
        if self.left and self._chance.random() < self._share:
            self.left -= 1
            raise Killed(point)


def killed_at_random(folder, seed, kills):
    chance = Chance(seed, 0, 0.05)
    bench = Bench(
        folder, rows=12, regions=hostile(seed), kill=chance, rules=Rules(brake=0, retries=3)
    )
    chance.left = kills
    bench.run()
    return bench, kills - chance.left


@pytest.mark.parametrize("wanted", [100, pytest.param(2_000, marks=pytest.mark.soak)])
def test_random_kills_lose_nothing_double_nothing_and_the_books_agree(tmp_path, wanted):
    done = 0
    seed = 0
    while done < wanted:
        folder = tmp_path / str(seed)
        folder.mkdir()
        bench, kills = killed_at_random(folder, seed, 60)
        bench.judge()
        assert sum(bench.states().values()) == 12
        done = done + kills
        seed = seed + 1
        bench.store.close()


def scenario():
    """Return three rows and two regions in which each kind of effect occurs at least once."""
    begin = 1_800_000_000.0
    bad = {"bad": "AlgorithmError: exit code: 1"}
    regions = {
        "us-east-1": Behaviour(fails=bad, lost=0.5, quota=2, run_s=120, start_s=60),
        "eu-west-1": Behaviour(
            fails=bad, run_s=200, start_s=60, late=0.5, silent=((begin + 20, begin + 90),)
        ),
    }
    return regions, [
        Row(key=key, position=number) for number, key in enumerate(("a", "bad", "c", "d"))
    ]


# All 611 points take a minute of a core, and a sample of them a second.
@pytest.mark.parametrize(
    "stride", [97, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_killed_at_a_point_between_two_effects_it_goes_on_as_if_nothing_had_been(tmp_path, stride):
    regions, rows = scenario()
    (tmp_path / "whole").mkdir()
    whole = Bench(tmp_path / "whole", regions=regions, rows=rows)
    first = len(whole.points)
    whole.run()
    whole.judge()
    kinds = {point.partition(" ")[2] for point in whole.points[first:]}
    assert {
        "lease",
        "intents",
        "create",
        "sent",
        "refused",
        "page",
        "list",
        "described",
        "describe",
    } <= kinds
    for number in range(first, len(whole.points), stride):
        folder = tmp_path / str(number)
        folder.mkdir()
        bench = Bench(folder, regions=scenario()[0], rows=rows, kill=_At(number))
        bench.run()
        bench.judge()
        assert bench.states() == {"done": 3, "failed": 1}
        bench.store.close()


class _At:
    """Kills at one point, counted from the first."""

    def __init__(self, number):
        self._left = number

    def __call__(self, point):
        self._left -= 1
        if self._left == -1:
            raise Killed(point)


def run(folder, **options):
    bench = Bench(folder, **options)
    bench.run()
    bench.judge()
    return bench


def test_a_region_that_is_down_for_an_hour_ends_no_attempt(tmp_path):
    silent = ((BEGIN + 100, BEGIN + 3_700),)
    bench = run(tmp_path, regions={"us-east-1": Behaviour(silent=silent, run_s=1_000)}, rows=5)
    assert [attempt.ending for attempt in bench.store.attempts.all()] == ["OK"] * 5
    assert len(bench.regions["us-east-1"].lives) == 5


def test_a_create_that_lands_after_its_refusal_is_stopped_and_counted_as_waste(tmp_path):
    region = Behaviour(late=1.0, late_s=60, run_s=5_000)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": region, "eu-west-1": Behaviour()})
    bench.step()
    # Before it lands the account's quota is lowered: sent again, the same call is refused.
    bench.regions["us-east-1"].behaviour.late = 0
    bench.regions["us-east-1"].behaviour.quota = 0
    bench.run()
    bench.judge()
    (landed,) = bench.regions["us-east-1"].lives.values()
    assert landed.asked_s is not None
    assert bench.states() == {"done": 1}
    assert any(event.now == "stray" for event in bench.store.events.after())


def test_a_job_that_ends_before_its_create_is_answered_is_counted(tmp_path):
    bench = Bench(
        tmp_path, rows=1, regions={"us-east-1": Behaviour(lost=1.0, start_s=10, run_s=100)}
    )
    bench.step()
    bench.clock.now += 200
    bench.run()
    bench.judge()
    assert bench.store.costs.money(bench.clock.now).spent_usd > 0


def test_a_row_gets_no_second_job_while_an_orphaned_one_is_stopping(tmp_path):
    region = Behaviour(late=1.0, late_s=100, start_s=5, run_s=5_000, stop_s=120)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": region, "eu-west-1": Behaviour()})
    bench.step()
    # The repeated call is refused, and then the first one is carried out.
    region.late = region.quota = 0
    bench.run()
    assert bench.states() == {"done": 1}
    assert [life.asked_s is not None for life in bench.regions["us-east-1"].lives.values()] == [
        True
    ]
    bench.judge()
    assert bench.store.costs.money(bench.clock.now).wasted_usd == pytest.approx(
        bench.regions["us-east-1"].usd()
    )


@pytest.mark.parametrize("jump_s", [3_600, -3_600])
def test_a_clock_that_jumps_loses_nothing(tmp_path, jump_s):
    bench = Bench(tmp_path, rows=6)
    for number in range(40):
        bench.step()
        if number == 10:
            bench.clock.now += jump_s
            # The service's own clock is right: it is ours that was set.
            for region in bench.regions.values():
                for life in region.lives.values():
                    life.created_s, life.started_s, life.ended_s = (
                        at + jump_s for at in (life.created_s, life.started_s, life.ended_s)
                    )
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 6}


def test_credentials_that_expire_close_their_region_and_no_row_fails(tmp_path):
    expired = ServiceError(
        "create: ExpiredTokenException: The security token has expired",
        code="ExpiredTokenException",
    )
    bench = Bench(
        tmp_path,
        rows=4,
        regions={"us-east-1": Behaviour(refusal=expired), "eu-west-1": Behaviour()},
    )
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 4}
    assert len(bench.regions["eu-west-1"].lives) == 4
    assert any(
        event.now == "closed" and "ExpiredToken" in event.text
        for event in bench.store.events.after()
    )


def test_a_controller_that_was_thought_dead_changes_nothing_when_it_wakes(tmp_path):
    bench = Bench(tmp_path, rows=4)
    bench.step()
    sleeper = bench.controller
    bench.controller = None
    bench.clock.now += 31
    bench.open()
    bench.step()
    before = sum(region.calls["create"] for region in bench.regions.values())
    with pytest.raises(LeaseLost):
        sleeper.step(bench.clock.now)
    assert sum(region.calls["create"] for region in bench.regions.values()) == before
    sleeper.store.database.close()
    bench.run()
    bench.judge()


def test_a_disk_that_is_full_ends_the_step_and_loses_nothing(tmp_path):
    bench = Bench(tmp_path, rows=200)
    pages = bench.store.database.connection.execute("PRAGMA page_count").fetchone()[0]
    bench.store.database.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        bench.run()
    bench.clock.now += 31
    bench.open()
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 200}


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 8))]
)
def test_stopped_in_the_midst_of_all_that_nothing_is_sent_any_more(tmp_path, seed):
    bench = Bench(tmp_path, rows=12, regions=hostile(seed), kill=Chance(seed, 30, 0.05))
    for _ in range(random.Random(seed).randrange(3, 40)):
        with contextlib.suppress(Killed):
            bench.step()
            continue
        bench.clock.now += 31
        bench.open()
    stopped_s = bench.clock.now
    # By another process, which nothing kills.
    chance = bench.kill
    bench.kill = lambda point: None
    bench.store.change_state("stopping", stopped_s, fenced=False)
    bench.kill = chance
    bench.run()
    bench.judge()
    # What lands after it was called before; nothing else is created. Of those, some end before they
    # can be asked.
    late = [
        life
        for region in bench.regions.values()
        for life in region.lives.values()
        if life.created_s > stopped_s
    ]
    assert all(life.asked_s is not None or not life.runs for life in late)
    assert set(bench.states()) <= {"done", "failed", "stopped"}
    assert bench.store.grid().state == "closed"


USD = {"us-east-1": 1.0, "us-west-2": 1.1, "eu-west-1": 8.0, "eu-central-1": 9.0}
TABLE = PriceTable.of(
    [
        RegionPrices(region=name, as_of="2026-11-01", version="v1", usd={TYPE: usd})
        for name, usd in USD.items()
    ]
)


def cheapest(move_data=False):
    return Placement(offers=offers_of(list(USD), [TYPE], TABLE), move_data=move_data)


def at_home(count, input_bytes=10**9):
    """Return rows of which each has its data in one of the four regions."""
    homes = list(USD)
    return [
        Row(
            key=f"row-{number}",
            position=number,
            region=homes[number % 4],
            input_bytes=input_bytes,
            max_runtime_s=7200,
        )
        for number in range(count)
    ]


def away(bench):
    """Return how many jobs ran in another region than that of their row's data."""
    homes = {record.row.key: record.row.region for record in bench.store.rows.all()}
    return sum(
        homes[life.row_key] != name
        for name, region in bench.regions.items()
        for life in region.lives.values()
    )


def troubled(folder, rows, move_data):
    """Run rows where two regions are eight times as dear, one of them has little, and the other is silent for long."""
    regions = {name: Behaviour(usd_per_hour=usd) for name, usd in USD.items()}
    regions["eu-west-1"] = Behaviour(usd_per_hour=USD["eu-west-1"], capacity=40)
    regions["eu-central-1"] = Behaviour(
        usd_per_hour=USD["eu-central-1"], silent=((1_800_000_300.0, 1_800_002_000.0),)
    )
    rules = Rules(brake=0, parallel=1000, give_up_s=30 * 86_400)
    bench = Bench(folder, rows=rows, regions=regions, rules=rules, placement=cheapest(move_data))
    bench.run()
    bench.judge()
    assert bench.states() == {"done": len(rows)}
    return bench


@pytest.mark.parametrize("rows", [80, pytest.param(1000, marks=pytest.mark.soak)])
def test_of_many_rows_none_leaves_the_region_of_its_data(tmp_path, rows):
    assert away(troubled(tmp_path, at_home(rows), move_data=False)) == 0


def _of_one_price():
    return [Offer(place=Place(region=name, instance_type=TYPE), usd_per_hour=1.0) for name in USD]


def _rows(count):
    return [
        Row(key=f"row-{number}", position=number, max_runtime_s=7200) for number in range(count)
    ]


def test_the_next_place_is_chosen_within_a_second_of_the_error_that_was_seen(tmp_path):
    # Of one price: a row rather waits a little for a far cheaper place than to go at once. One says
    # it of a job that it took, the other one refuses the very call.
    regions = {name: Behaviour() for name in USD}
    regions["us-east-1"] = Behaviour(capacity=0)
    regions["us-west-2"] = Behaviour(quota=0)
    bench = Bench(
        tmp_path, rows=_rows(40), regions=regions, placement=Placement(offers=_of_one_price())
    )
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 40}
    # By when its end was seen, which is up to a pause between two looks after it was.
    refused_s = {}
    waits_s = []
    for event in bench.store.events.after(limit=10_000):
        if event.attempt:
            continue
        if (event.was, event.now) == ("placed", "waiting"):
            refused_s[event.row_key] = event.at_s
        elif event.now == "placed" and event.row_key in refused_s:
            waits_s.append(event.at_s - refused_s.pop(event.row_key))
    assert len(waits_s) > 10
    assert max(waits_s) <= 1
    assert {"CAPACITY", "QUOTA"} <= {attempt.ending for attempt in bench.store.attempts.all()}


@pytest.mark.long
def test_of_quotas_that_were_read_before_no_call_ever_asks_for_more(tmp_path):
    limits = dict(zip(USD, (3, 7, 12, 20), strict=True))
    regions = {
        name: Behaviour(usd_per_hour=usd, spread=0.5, quota=limits[name])
        for name, usd in USD.items()
    }
    rows = [
        Row(key=f"row-{number}", position=number, count=1 + number % 5, max_runtime_s=7200)
        for number in range(25)
    ]
    rules = Rules(brake=0, parallel=1000, give_up_s=30 * 86_400)
    bench = Bench(tmp_path, rows=rows, regions=regions, rules=rules, placement=cheapest())
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
    template = Template(
        workload=Script("train.py"), target=AWS(role="arn:aws:iam::1:role/r"), options={}
    )
    source = source_of(
        [
            {"key": f"row-{number}", "expected_s": 900, "max_runtime_s": 7200}
            for number in range(100)
        ]
    )
    request = GridRequest(
        name="g",
        template=template,
        source=source,
        regions=tuple(USD),
        instance_types=(TYPE,),
        rules=Rules(brake=0),
    )
    # Quotas send half of them to the dear regions; and what a row takes scatters by a fifth about
    # what it says.
    quotas = {Place(region=name, instance_type=TYPE): Quota(limit=20) for name in USD}
    rows = request.read_rows()
    low, high = plan_grid(request, rows, TABLE, quotas, today=date(2026, 11, 22)).usd
    regions = {
        name: Behaviour(usd_per_hour=usd, run_s=900, spread=0.2, quota=20)
        for name, usd in USD.items()
    }
    bench = Bench(tmp_path, rows=rows, regions=regions, placement=cheapest())
    bench.run()
    bench.judge()
    books = sum(region.usd() for region in bench.regions.values())
    assert bench.states() == {"done": 100}
    assert 0.9 * low <= books <= 1.1 * high
    assert high <= 1.1 * low

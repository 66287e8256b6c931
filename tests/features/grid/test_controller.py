"""The controller under a clock that the test moves: what becomes of a grid's rows, step by step."""

import dataclasses
import re
import threading

import pytest

from raysm.features.grid.attempt import AttemptState
from raysm.features.grid.attempt_end import end_finished
from raysm.features.grid.capacity import set_quota
from raysm.features.grid.controller import Controller, Placer
from raysm.features.grid.endings import ENDINGS, Verdict
from raysm.features.grid.limiter import Rate
from raysm.features.grid.market import Offer, Place, Quota
from raysm.features.grid.placement import Forecast, Placement
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store
from tests.support.budgets import USER, budget_used
from tests.support.grid_world import LOST, Behaviour
from tests.support.grids import FAST, TYPE, Bench, Killed


def intended(bench):
    bench.store.database.take_lease("me", bench.clock.now)
    placer = Placer(
        bench.store,
        bench.placement,
        Forecast(),
        bench.limiter,
        list(bench.regions),
        bench.clock.now,
    )
    return placer, [attempt.row_key for _, attempt in placer.intend()]


def warm(bench):
    """Let the buckets fill."""
    for region in bench.regions:
        bench.limiter.take(region, "create", bench.clock.now)
    bench.clock.now += 60
    return bench


def test_the_more_urgent_and_the_longer_go_first_whatever_their_region(tmp_path):
    rows = [
        Row(key="short", position=0, region="us-east-1"),
        Row(key="long", position=1, expected_s=600.0, region="eu-west-1"),
        Row(key="urgent", position=2, priority=1),
    ]
    assert intended(warm(Bench(tmp_path, rows=rows)))[1] == ["urgent", "long", "short"]


def test_the_intent_is_in_the_store_before_create_is_called(tmp_path):
    bench = Bench(tmp_path, rows=1)
    region = bench.regions["us-east-1"]
    create = region.create
    seen = []

    def looking(row, attempt):
        # Through a connection of its own: what is not committed is not seen.
        other = Store(tmp_path / "g.db")
        seen.append((other.attempts.find(attempt.name).state, attempt.name))
        other.close()
        create(row, attempt)

    region.create = looking
    bench.step()
    assert seen == [
        (AttemptState.INTENDED, f"{bench.store.grid().prefix}{Row(key='row-0').key_hash}-a1")
    ]


def test_an_intent_is_flushed_to_the_disk_before_create_is_called(tmp_path):
    bench = Bench(tmp_path, rows=1)
    # Without that, a machine that loses its power forgets a job that the service has.
    effects = []
    bench.store.database.connection.set_trace_callback(effects.append)
    for region in bench.regions.values():

        def create(row, attempt, made=region.create):
            effects.append("create")
            made(row, attempt)

        region.create = create
    bench.step()
    bench.store.database.connection.set_trace_callback(None)
    before = effects[: effects.index("create")]
    inserted = next(
        number for number, each in enumerate(before) if each.startswith("INSERT INTO attempt")
    )
    levels = [each for each in before[:inserted] if each.startswith("PRAGMA synchronous")]
    assert levels[-1] == "PRAGMA synchronous = FULL"
    assert (
        next(each for each in before[inserted:] if each.startswith(("COMMIT", "PRAGMA")))
        == "COMMIT"
    )


def test_two_rows_whose_keys_have_one_hash_run_as_two_jobs(tmp_path):
    first = Row(key="row-2087905")
    second = Row(key="row-2212063", position=1)
    assert first.key_hash == second.key_hash
    bench = Bench(tmp_path, rows=[first, second])
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 2}
    assert len({attempt.name for attempt in bench.store.attempts.all()}) == 2


def test_a_failed_row_is_tried_again_as_often_as_the_rules_say(tmp_path):
    bench = Bench(
        tmp_path,
        rows=2,
        regions={"us-east-1": Behaviour(fails={"row-1": USER})},
        rules=Rules(brake=0, retries=2),
    )
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 1, "failed": 1}
    assert [attempt.ending for attempt in bench.store.attempts.of_row("row-1")] == ["USER"] * 3
    reason = bench.store.rows.get("row-1").reason
    assert reason.startswith(USER)
    assert "its retries are used up" in reason
    assert "raysm grid retry" in reason


def test_a_job_that_waits_too_long_for_its_instances_is_taken_elsewhere(tmp_path):
    regions = {"us-east-1": Behaviour(start_s=10**6), "eu-west-1": Behaviour()}
    bench = Bench(tmp_path, rows=2, regions=regions, rules=Rules(brake=0, patience_s=600))
    took_s = bench.run()
    bench.judge()
    assert bench.states() == {"done": 2}
    assert took_s < 600 + 840 + 200
    assert {attempt.ending for attempt in bench.store.attempts.all()} == {"CAPACITY", "OK"}


def test_a_job_whose_create_was_not_answered_is_taken_elsewhere_too_if_it_waits_too_long(tmp_path):
    regions = {"us-east-1": Behaviour(lost=1.0, start_s=10**6), "eu-west-1": Behaviour()}
    bench = Bench(tmp_path, rows=1, regions=regions, rules=Rules(brake=0, patience_s=600))
    took_s = bench.run(most_s=7200)
    assert bench.states() == {"done": 1}
    assert took_s < 600 + 840 + 200


ASLEEP_S = 3 * 3600.0


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("silent_s", [0, 600])
def test_jobs_that_began_while_nobody_looked_are_not_stopped_as_those_that_wait(
    tmp_path, is_new, silent_s
):
    # Fewer answers at once than there are jobs, and for a while none at all.
    rates = FAST | {"describe": Rate(per_s=1, burst=5)}
    bench = Bench(tmp_path, rows=12, regions={"us-east-1": Behaviour(run_s=50_000)}, rates=rates)
    while len(bench.regions["us-east-1"].lives) < 12:
        bench.step()
    bench.clock.now += ASLEEP_S
    bench.regions["us-east-1"].behaviour.silent = ((bench.clock.now, bench.clock.now + silent_s),)
    if is_new:
        bench.open()
    while {attempt.state for attempt in bench.store.attempts.open()} != {AttemptState.RUNNING}:
        bench.step()
    assert [attempt.stop_reason for attempt in bench.store.attempts.all()] == [""] * 12


def test_a_quota_that_a_refusal_names_is_learned_and_never_exceeded_again(tmp_path):
    bench = Bench(
        tmp_path, rows=20, regions={"us-east-1": Behaviour(quota=3, run_s=60, start_s=10)}
    )
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 20}
    refused = [attempt for attempt in bench.store.attempts.all() if attempt.ending == "QUOTA"]
    # All of the first step were sent before the first refusal came back; of later ones none.
    assert {attempt.intended_s for attempt in refused} == {
        min(attempt.intended_s for attempt in refused)
    }


def test_a_quota_that_other_jobs_used_is_tried_again_after_ten_minutes(tmp_path):
    until_s = 1_800_000_000.0 + 1800
    bench = Bench(tmp_path, rows=2, regions={"us-east-1": Behaviour(quota=2, others=(2, until_s))})
    took_s = bench.run(most_s=7200)
    assert bench.states() == {"done": 2}
    # Until the others end, until that is noticed, and the job.
    assert took_s < 1800 + 660 + 840 + 60


def test_the_first_jobs_that_fail_for_one_reason_pause_the_grid(tmp_path):
    bench = Bench(
        tmp_path,
        rows=1000,
        regions={"us-east-1": Behaviour(run_s=30, fails={"share:1": USER})},
        rules=Rules(retries=2),
    )
    bench.run()
    assert bench.store.grid().state == "paused"
    assert USER in bench.store.grid().why
    assert len(bench.regions["us-east-1"].lives) == 3
    bench.judge(ended=False)


def test_failures_after_the_first_jobs_do_not_pause_the_grid(tmp_path):
    fails = {f"row-{number}": USER for number in range(3, 6)}
    rules = Rules(brake=3, retries=0, parallel=3)
    bench = Bench(
        tmp_path, rows=6, regions={"us-east-1": Behaviour(run_s=30, fails=fails)}, rules=rules
    )
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("closed", {"done": 3, "failed": 3})


def test_first_jobs_that_lose_their_instances_do_not_pause_the_grid(tmp_path):
    region = Behaviour(
        run_s=30, fails={"share:1": "InsufficientInstanceCapacity: the instances were taken back"}
    )
    bench = Bench(tmp_path, rows=3, regions={"us-east-1": region}, rules=Rules(brake=3))
    bench.run_until(
        lambda: sum(each.ending == "CAPACITY" for each in bench.store.attempts.all()) > 3
    )
    assert bench.store.grid().state == "open"


def test_a_stopped_grid_stops_all_jobs_at_the_buckets_rate_and_starts_none(tmp_path):
    bench = Bench(
        tmp_path,
        rows=60,
        rates={name: Rate(per_s=50, burst=50) for name in ("create", "list", "describe")}
        | {"stop": Rate(per_s=2, burst=2)},
        rules=Rules(brake=0, parallel=40),
    )
    for _ in range(3):
        bench.step()
    created = sum(region.calls["create"] for region in bench.regions.values())
    bench.store.change_state("stopping", bench.clock.now, fenced=False)
    took_s = bench.run()
    bench.judge()
    assert sum(region.calls["create"] for region in bench.regions.values()) == created
    assert bench.states() == {"stopped": 60}
    assert took_s < 60


def test_what_runs_out_of_time_goes_on_in_the_region_of_its_checkpoints(tmp_path):
    bench = Bench(tmp_path, rows=1)
    store = bench.store
    bench.step()
    (attempt,) = store.attempts.open()
    with store.database.transaction("end"):
        end_finished(
            store,
            attempt,
            Verdict(ending=ENDINGS["TIME"], reason="MaxRuntimeExceeded"),
            None,
            bench.clock.now,
        )
    offers = [
        Offer(place=Place(region=name, instance_type="ml.m5.large"))
        for name in ("eu-west-1", "us-east-1")
    ]
    bench.controller = Controller(
        store, bench.regions, Placement(offers=offers), bench.limiter, owner="another"
    )
    store.database.fence = 0
    bench.clock.now += 31
    bench.step()
    assert store.attempts.all()[-1].region == "us-east-1"


@pytest.mark.parametrize(
    "scenarios", [1, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
def test_a_budget_is_never_exceeded(tmp_path, scenarios):
    for seed in range(scenarios):
        (tmp_path / str(seed)).mkdir()
        assert budget_used(tmp_path / str(seed), seed) <= 1, seed


def test_a_row_has_as_many_instances_as_it_asks_for_and_the_budget_counts_them(tmp_path):
    # One instance costs 2.03 dollars at most, and four 8.13.
    rows = [Row(key="row", count=4, max_runtime_s=7200)]
    bench = Bench(tmp_path, rows=rows, rules=Rules(brake=0, max_cost=8.0))
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("paused", {"waiting": 1})
    bench.store.change_rules(dataclasses.replace(bench.rules, max_cost=9.0))
    bench.store.go_on(bench.clock.now)
    bench.run()
    assert [attempt.count for attempt in bench.store.attempts.all()] == [4]


def test_a_budget_that_is_used_up_pauses_the_grid_and_says_so(tmp_path):
    bench = Bench(
        tmp_path, rows=5, rules=Rules(brake=0, max_cost=2.5), regions={"us-east-1": Behaviour()}
    )
    bench.run()
    assert bench.store.grid().state == "paused"
    assert re.match(
        r"the budget of \$2.50 does not allow a further job: row 'row-\d' may take \$2.03 \(2 h 0 min at most in "
        r"ml.m5.large in us-east-1\), and \$\d.\d\d are left; raise --max-cost, lower --max-runtime, or stop",
        bench.store.grid().why,
    )
    # Each row costs 17 cents, and is placed while 2.03 dollars are left.
    assert bench.states() == {"done": 3, "waiting": 2}
    bench.store.change_rules(dataclasses.replace(bench.rules, max_cost=100))
    bench.store.go_on(bench.clock.now)
    bench.run()
    assert bench.states() == {"done": 5}


def test_regions_are_called_side_by_side_where_time_passes_meanwhile(tmp_path):
    bench = Bench(tmp_path, rows=2)
    bench.limiter.moment = lambda: bench.clock.now
    both = threading.Barrier(2)
    threads = set()
    for region in bench.regions.values():

        def create(row, attempt, made=region.create):
            threads.add(threading.current_thread().name)
            # Neither is answered before the other one is called.
            both.wait(60)
            made(row, attempt)

        region.create = create
    # A place of each: both rows are sent in one step.
    bench.regions["us-east-1"].behaviour.quota = bench.regions["eu-west-1"].behaviour.quota = 1
    with bench.store.database.transaction("quotas", fenced=False):
        for region in bench.regions:
            set_quota(
                bench.store,
                Place(region=region, instance_type=TYPE),
                Quota(limit=1),
                bench.clock.now,
            )
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 2}
    assert len(threads) == 2


def test_no_more_jobs_run_at_a_time_than_the_rules_allow(tmp_path):
    bench = Bench(tmp_path, rows=20, rules=Rules(brake=0, parallel=3))
    most = 0
    while bench.step():
        lives = [life for region in bench.regions.values() for life in region.lives.values()]
        most = max(most, sum(life.ended_s > bench.clock.now for life in lives))
    assert most == 3
    assert bench.states() == {"done": 20}


LEFT = "us-east-1"
KEPT = "eu-west-1"


def bench_of(folder, left=None, rows=1):
    """Return a grid whose rows go to the region that will be left."""
    return Bench(folder, rows=rows, regions={LEFT: left or Behaviour(), KEPT: Behaviour()})


def test_a_job_in_a_region_that_was_taken_out_is_followed_to_its_end_and_the_grid_closes(tmp_path):
    bench = bench_of(tmp_path)
    bench.step()
    bench.leave(LEFT)
    bench.run(most_s=86_400)
    bench.judge()
    assert bench.states() == {"done": 1}
    assert bench.store.grid().state == "closed"
    assert [attempt.region for attempt in bench.store.attempts.all()] == [LEFT]


def test_what_was_intended_there_and_never_sent_goes_elsewhere_once_nothing_can_land_any_more(
    tmp_path,
):
    bench = bench_of(tmp_path, Behaviour(refusal=LOST))
    bench.step()
    assert bench.store.attempts.open()[0].state is AttemptState.MAYBE
    began_s = bench.clock.now
    bench.leave(LEFT)
    bench.regions[LEFT].behaviour.refusal = None
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 1}
    assert bench.regions[LEFT].lives == {}
    first, second = bench.store.attempts.of_row("row-0")
    assert (first.ending, second.region) == ("LEFT", KEPT)
    assert second.intended_s - began_s > 119


def test_a_region_that_was_taken_out_and_does_not_answer_is_named_with_a_remedy(tmp_path):
    bench = bench_of(tmp_path)
    bench.step()
    bench.leave(LEFT)
    until_s = bench.clock.now + 3600
    bench.regions[LEFT].behaviour.silent = ((0, until_s),)
    while bench.clock.now < until_s - 60:
        bench.step()
    (reason,) = bench.store.database.connection.execute(
        "SELECT reason FROM region WHERE name = ?", (LEFT,)
    ).fetchone()
    assert "Could not connect" in reason
    assert (
        "was removed from the grid, which stays open until the region says how 1 job there ended"
        in reason
    )
    bench.run()
    assert bench.store.grid().state == "closed"


def test_a_region_that_was_taken_out_and_does_not_answer_is_asked_for_one_job_in_each_step(
    tmp_path,
):
    bench = Bench(tmp_path, rows=5, regions={LEFT: Behaviour(), KEPT: Behaviour()})
    for region in (LEFT, KEPT):
        for operation in ("create", "describe"):
            bench.limiter.take(region, operation, bench.clock.now)
    bench.clock.now += 60

    def kill(point):
        if point == "before create":
            raise Killed

    bench.kill = kill
    with pytest.raises(Killed):
        bench.step()
    bench.kill = lambda point: None
    assert [attempt.region for attempt in bench.store.attempts.all()].count(LEFT) > 1
    bench.leave(LEFT)
    bench.clock.now += 600
    bench.regions[LEFT].behaviour.silent = ((0, bench.clock.now + 60),)
    bench.points.clear()
    bench.step()
    assert bench.points.count("before describe") == 1
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 5}


def test_an_attempt_that_was_never_sent_ends_once_nothing_can_land_any_more(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(refusal=LOST)})
    bench.step()
    began_s = bench.clock.now
    bench.store.change_state("stopping", began_s, fenced=False)
    while bench.store.attempts.open():
        bench.step()
    assert bench.clock.now - began_s > 119
    assert bench.store.attempts.all()[0].ending == "STOPPED"
    bench.run()
    assert bench.states() == {"stopped": 1}

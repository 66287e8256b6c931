"""What another process does between two effects of a controller: rows, jobs and money stay right.

``tests.simulate`` searches for such moments; each test here is one that it found.
"""

import contextlib
from dataclasses import replace

import pytest

from raysm.errors import ServiceError
from raysm.features.grid.attempt_end import end_finished
from raysm.features.grid.corrections import correct
from raysm.features.grid.endings import ENDINGS, Verdict
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.database import LeaseLost
from raysm.features.grid.store.store import Store
from tests.support.grid_world import CAPACITY_ERROR, Behaviour
from tests.support.grids import Bench, Killed


@pytest.fixture
def other(tmp_path):
    """Return what opens the grid's file as another process does."""
    opened = []

    def open_store():
        opened.append(Store(tmp_path / "g.db"))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def at(bench, point, work):
    """Let ``work`` run once when the controller comes to a point."""
    pending = [work]

    def run(name):
        if name == point and pending:
            pending.pop()()

    bench.kill = run


def test_a_row_that_is_corrected_while_it_is_placed_runs_as_it_was_corrected(tmp_path, other):
    bench = Bench(tmp_path, rows=[Row(key="a", parameters={"lr": 1}, max_runtime_s=7200)])
    sent = []
    for region in bench.regions.values():
        create = region.create

        def note(row, attempt, create=create):
            sent.append(dict(row.parameters))
            create(row, attempt)

        region.create = note
    recorded = bench.store.rows.get("a").row
    at(bench, "before intents", lambda: correct(other(), [replace(recorded, parameters={"lr": 2})]))
    bench.run()
    assert sent == [{"lr": 2}]
    assert bench.store.rows.get("a").row.parameters == {"lr": 2}
    assert bench.states() == {"done": 1}


def test_a_row_that_is_added_while_the_grid_closes_runs(tmp_path, other):
    bench = Bench(tmp_path, rows=1)
    at(
        bench,
        "before grid closed",
        lambda: other().add([Row(key="late", position=1, max_runtime_s=7200)]),
    )
    bench.run()
    assert bench.states() == {"done": 2}
    assert bench.store.grid().state == "closed"


def test_a_grid_that_is_closed_has_released_its_lease(tmp_path, other):
    bench = Bench(tmp_path, rows=1)
    leases = []
    at(
        bench,
        "after grid closed",
        lambda: leases.append(other().database.has_controller(bench.clock.now)),
    )
    bench.run()
    assert leases == [False]


def vanish():
    raise Killed


def end_by_time(bench, attempt):
    """Let a job reach its time limit."""
    bench.regions[attempt.region].lives[attempt.name].ended_s = bench.clock.now
    verdict = Verdict(ending=ENDINGS["TIME"], reason="MaxRuntimeExceeded")
    with bench.store.database.transaction("end"):
        end_finished(bench.store, attempt, verdict, None, bench.clock.now)


def sleeping_before_create(bench, meanwhile):
    """Return the controller after ``meanwhile`` has happened between its intent and its Create."""
    sleeper = bench.controller
    bench.controller = None
    create = bench.regions["us-east-1"].create

    def late(row, attempt):
        bench.regions["us-east-1"].create = create
        meanwhile()
        create(row, attempt)

    bench.regions["us-east-1"].create = late
    return sleeper


def test_a_job_that_is_made_after_its_lease_was_lost_is_stopped(tmp_path):
    behaviour = Behaviour(run_s=50_000)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": behaviour, "eu-west-1": Behaviour()})

    def another_runs_it():
        bench.clock.now += 31
        bench.open()
        # The repeated call is refused, so the row runs elsewhere, and the grid ends.
        behaviour.quota = 0
        bench.run()
        behaviour.quota = 10**9

    first = bench.store
    sleeper = sleeping_before_create(bench, another_runs_it)
    with pytest.raises(LeaseLost):
        sleeper.step(bench.clock.now)
    assert bench.states() == {"done": 1}
    (life,) = bench.regions["us-east-1"].lives.values()
    assert life.asked_s is not None
    assert bench.store.costs.money(bench.clock.now).at_stake_usd > 0
    first.database.close()


def test_a_job_that_another_controller_counts_is_not_stopped(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour()})

    def another_sends_it():
        bench.clock.now += 31
        bench.open()
        bench.step()

    first = bench.store
    sleeper = sleeping_before_create(bench, another_sends_it)
    with pytest.raises(LeaseLost):
        sleeper.step(bench.clock.now)
    first.database.close()
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 1}
    assert len(bench.store.attempts.all()) == 1


def test_a_job_that_another_controller_has_counted_to_its_end_is_not_watched_for_ever(tmp_path):
    behaviour = Behaviour(run_s=60)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": behaviour})

    def another_runs_it():
        bench.clock.now += 31
        bench.open()
        bench.run()
        # Another row, so that the grid is open when the sleeper wakes.
        bench.store.add([Row(key="late", position=1, max_runtime_s=7200)])

    first = bench.store
    sleeper = sleeping_before_create(bench, another_runs_it)
    with pytest.raises(LeaseLost):
        sleeper.step(bench.clock.now)
    first.database.close()
    bench.open()
    bench.run()
    bench.judge()
    assert bench.states() == {"done": 2}
    assert bench.store.grid().state == "closed"


def test_a_refused_intent_of_a_controller_that_vanished_is_watched(tmp_path):
    behaviour = Behaviour(quota=0)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": behaviour, "eu-west-1": Behaviour()})
    at(bench, "before create", vanish)
    with pytest.raises(Killed):
        bench.step()
    bench.clock.now += 31
    bench.open()
    bench.step()
    (refused,) = [each for each in bench.store.attempts.all() if each.ending == "QUOTA"]
    assert refused.watch_s > bench.clock.now


def test_a_refused_intent_whose_first_call_the_user_interrupted_is_watched(tmp_path):
    late = Behaviour(late=1.0, late_s=100)
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": late, "eu-west-1": Behaviour()})
    region = bench.regions["us-east-1"]
    create = region.create

    def interrupted(row, attempt):
        with contextlib.suppress(ServiceError):
            create(row, attempt)
        raise KeyboardInterrupt

    region.create = interrupted
    with pytest.raises(KeyboardInterrupt):
        bench.step()
    # Ctrl-C releases the lease. The next controller's call is refused, and then the first one is
    # carried out.
    bench.store.close()
    bench.controller = None
    region.create = create
    late.late = late.quota = 0
    bench.open()
    bench.run()
    assert [life.asked_s is not None for life in region.lives.values()] == [True]
    assert bench.states() == {"done": 1}
    bench.judge()


def test_rows_wait_for_no_region_that_is_silent_before_they_are_sent(tmp_path):
    silent = (1_800_000_000.0, 1_800_000_000.0 + 11 * 3600)
    regions = {"us-east-1": Behaviour(silent=(silent,)), "eu-west-1": Behaviour()}
    bench = Bench(tmp_path, rows=50, regions=regions)
    while len(bench.regions["eu-west-1"].lives) < 49:
        bench.step()
    # All but the one whose call was not answered.
    assert bench.clock.now - silent[0] < 600


def test_a_row_that_must_wait_for_its_checkpoints_blocks_no_other_row(tmp_path):
    bench = Bench(tmp_path, rows=10, rules=Rules(brake=0, parallel=1))
    store = bench.store
    bench.step()
    (attempt,) = store.attempts.open()
    bench.regions[attempt.region].behaviour.fails = {"share:1": CAPACITY_ERROR}
    end_by_time(bench, attempt)
    began_s = bench.clock.now
    bench.run_until(lambda: store.rows.states().get("done", 0) == 9)
    # Each takes a quarter of an hour; the slot is now and then taken by a try of the first row.
    assert bench.clock.now - began_s < 9 * 1800


def test_a_row_stays_with_its_checkpoints_after_its_region_ran_out_of_capacity(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(), "eu-west-1": Behaviour()})
    bench.step()
    (attempt,) = bench.store.attempts.open()
    end_by_time(bench, attempt)
    bench.regions[attempt.region].behaviour.fails = {"share:1": CAPACITY_ERROR}
    bench.run_until(lambda: len(bench.store.attempts.all()) > 2)
    bench.regions[attempt.region].behaviour.fails = {}
    bench.run()
    assert {each.region for each in bench.store.attempts.all()} == {attempt.region}
    assert bench.states() == {"done": 1}

"""What follows from an end: seconds that are billed, tries that are left, when it is given up."""

import pytest

from raysm.grid.conclusion import refuse, settle
from raysm.grid.endings import ENDINGS, Verdict
from raysm.grid.store import Store
from raysm.grid.task import AGAIN, Attempt, AttemptState, Rules, TaskState
from tests.support.budgets import USER
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench


def attempt(**changes):
    values = {
        "task": "t", "number": 1, "name": "a1", "region": "r", "instance_type": "ml", "count": 2, "sent_s": 1.0,
        "usd_per_hour": 36.0, "ending": "OK",
    }  # fmt: skip
    return Attempt(**values | changes)


@pytest.mark.parametrize("unknown", [{"usd_per_hour": None, "billable_s": 5.0}, {"billable_s": None}])
def test_what_is_not_known_is_counted_as_unknown(store, unknown):
    settle(store, attempt(**unknown))
    assert (store.money(0).spent_usd, store.money(0).unpriced) == (0, 1)


def test_a_refused_one_that_may_still_land_is_at_stake_until_it_cannot(store):
    store.insert(attempt(state=AttemptState.ENDED, max_runtime_s=3_600, watch_s=900.0))
    assert store.money(899).at_stake_usd == pytest.approx(72.0)
    assert store.money(901).at_stake_usd == 0


def test_work_that_an_interruption_took_away_is_counted_beside_and_no_waste(store):
    settle(store, attempt(billable_s=100.0, training_s=400.0, interruptions=1, interrupted_s=100.0))
    counted = store.money(0)
    assert (counted.spent_usd, counted.wasted_usd, counted.again_usd) == (pytest.approx(2.0), 0, pytest.approx(0.5))
    # What brought nothing at all is waste as a whole, once.
    settle(store, attempt(billable_s=100.0, training_s=400.0, interrupted_s=100.0, ending="USER"))
    assert (store.money(0).wasted_usd, store.money(0).again_usd) == (pytest.approx(2.0), pytest.approx(0.5))


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path, rows=1, rules=Rules(retries=1))
    bench.step()
    return bench


def end(bench, name, now=None, reason="why"):
    (attempt,) = bench.store.open_attempts()
    with bench.store.database.transaction("end"):
        refuse(bench.store, attempt, Verdict(ending=ENDINGS[name], reason=reason), now or bench.clock.now)
    return bench.store.task("row-0")


def test_a_wish_to_stop_is_not_answered_by_another_try(bench):
    bench.store.database.connection.execute("UPDATE attempt SET wish = 'user'")
    assert end(bench, "USER").state is TaskState.STOPPED


@pytest.mark.parametrize(
    ("reason", "jobs"),
    [
        ("AlgorithmError: ValueError: no such layer, exit code: 1", 1),
        ("AlgorithmError: RuntimeError: CUDA error, exit code: 1", 3),
        ("AlgorithmError: SIGKILL, exit code: 137", 3),
    ],
)
def test_an_error_that_the_program_would_raise_again_runs_one_job(tmp_path, reason, jobs):
    region = Behaviour(start_s=60, run_s=30, fails={"row-0": reason})
    bench = Bench(tmp_path, 1, regions={"us-east-1": region}, rules=Rules(retries=2, brake=0))
    bench.run()
    assert bench.store.task("row-0").state is TaskState.FAILED
    assert len(bench.store.attempts("row-0")) == jobs


@pytest.mark.parametrize("retries", [0, 2])
def test_who_mends_the_program_and_tries_again_is_not_stopped_by_the_failures_before(tmp_path, retries):
    region = Behaviour(start_s=60, run_s=30, fails={f"row-{number}": USER for number in range(6)})
    bench = Bench(tmp_path, rows=6, regions={"us-east-1": region}, rules=Rules(brake=3, retries=retries))
    bench.run()
    assert (bench.store.grid().state, len(bench.store.attempts())) == ("paused", 3)
    bench.store.again(AGAIN, bench.clock.now)
    # Not mended after all: the first jobs say so once more.
    bench.run()
    assert (bench.store.grid().state, len(bench.store.attempts())) == ("paused", 6)
    region.fails.clear()
    bench.store.again(AGAIN, bench.clock.now)
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("closed", {"done": 6})


@pytest.mark.parametrize("rules", [Rules(brake=3, retries=2), Rules(budget_usd=1.0)], ids=["brake", "budget"])
def test_a_wish_to_stop_that_comes_as_the_grid_is_paused_is_not_lost(tmp_path, rules):
    def stops(point):
        # As raysm grid stop does, in a process of its own.
        if point == "before grid paused":
            user = Store(tmp_path / "g.db")
            user.change_grid("stopping", 0.0, fenced=False)
            user.close()

    region = Behaviour(start_s=60, run_s=30, fails={f"row-{number}": USER for number in range(6)})
    bench = Bench(tmp_path, rows=6, regions={"us-east-1": region}, rules=rules, kill=stops)
    bench.run()
    assert (bench.store.grid().state, bench.states()) == ("closed", {"stopped": 6})

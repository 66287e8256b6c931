"""What follows from an end: seconds that are billed, tries that are left, when it is given up."""

import pytest

from raysm.client.job.description import Description, Status
from raysm.contract.job_api import TRAINING
from raysm.grid.attempt import AGAIN, TaskState
from raysm.grid.conclusion import billed_s, brake, conclude, refuse
from raysm.grid.endings import ENDINGS, Verdict
from raysm.grid.rules import Rules
from raysm.grid.store import Store
from tests.support.budgets import USER
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench


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


def test_a_job_that_never_had_its_instances_is_billed_for_nothing():
    assert billed_s(Description(name="j", arn="", api=TRAINING, status=Status.FAILED)) == 0
    assert billed_s(Description(name="j", arn="", api=TRAINING, status=Status.FAILED, billable_s=7)) == 7


def test_the_tasks_own_fault_uses_up_a_retry(bench):
    assert end(bench, "USER").retries_left == 0


def test_what_was_refused_waits_again_however_late_it_was(bench):
    # Whether it is given up is said by its places, when it is to be placed again (test_ends).
    assert end(bench, "CAPACITY", bench.clock.now + 3_700).state is TaskState.WAITING


def test_a_wish_to_stop_is_not_answered_by_another_try(bench):
    bench.store.database.connection.execute("UPDATE attempt SET wish = 'user'")
    assert end(bench, "USER").state is TaskState.STOPPED


def test_of_a_job_that_is_gone_the_cost_is_unknown(bench):
    (attempt,) = bench.store.open_attempts()
    with bench.store.database.transaction("end"):
        conclude(bench.store, attempt, Verdict(ending=ENDINGS["UNKNOWN"], reason="gone"), None, bench.clock.now)
    assert bench.store.attempts()[0].usd is None


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


def test_what_to_do_stands_in_the_first_line_of_a_reason(tmp_path):
    reason = "AlgorithmError: ValueError: 0,5\nTraceback (most recent call last):\nValueError: 0,5, exit code: 1"
    bench = Bench(tmp_path, 1, regions={"us-east-1": Behaviour(fails={"row-0": reason})})
    bench.run()
    first = bench.store.task("row-0").reason.splitlines()[0]
    assert first.endswith(
        "ValueError: 0,5; the same program would fail again: correct it, or the row, then raysm grid retry"
    )


def test_no_capacity_never_brakes(bench):
    end(bench, "CAPACITY")
    assert brake(bench.store, bench.store.grid()) is None


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

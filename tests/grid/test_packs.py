"""Rows that share a job: fewer hours, each row failing alone, and none run again that is done."""

import pytest

from raysm.contract.result import RowOutcome
from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.classify import Verdict
from raysm.grid.endings import ENDINGS
from raysm.grid.packs import job_verdict, members, row_end
from raysm.grid.row import rows_of
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench, Killed

CHANCE = "the script ended with 1: RuntimeError: CUDA error"
MISTAKE = "the script ended with 1: NameError: name 'lr' is not defined"
SMALL = {"run_s": 120.0, "start_s": 240.0}


def bench(folder, rows=40, *, pack=10, behaviour=None, limit_s=600, **rules):
    tasks = [Task(key=f"row-{number:04}", position=number, max_runtime_s=limit_s) for number in range(rows)]
    regions = {"us-east-1": behaviour or Behaviour(**SMALL)}
    return Bench(folder, regions=regions, rules=Rules(**{"brake": 0, "pack": pack} | rules), tasks=tasks)


def instance_hours(bench):
    return sum(
        (life.ended_s - life.created_s) * life.count
        for region in bench.regions.values()
        for life in region.lives.values()
    )


def test_a_thousand_rows_of_two_minutes_take_a_fifth_of_the_hours_and_of_the_calls(tmp_path):
    (tmp_path / "packed").mkdir()
    (tmp_path / "alone").mkdir()
    packed = bench(tmp_path / "packed", 1_000, pack=20, behaviour=Behaviour(**SMALL, slots=4))
    alone = bench(tmp_path / "alone", 1_000, pack=None)
    for each in (packed, alone):
        each.run()
        assert each.states() == {"done": 1_000}
        each.judge()
    assert instance_hours(alone) >= 5 * instance_hours(packed)
    # What is billed begins when the instances are there: four rows at a time take a quarter of it.
    assert alone.regions["us-east-1"].usd() >= 3.9 * packed.regions["us-east-1"].usd()
    assert packed.regions["us-east-1"].calls["create"] == 50


def test_a_row_that_fails_fails_alone_and_is_tried_again_in_another_job(tmp_path):
    grid = bench(tmp_path, 20, behaviour=Behaviour(**SMALL, fails={"row-0003": CHANCE}), retries=1)
    grid.run()
    assert grid.states() == {"done": 19, "failed": 1}
    record = grid.store.task("row-0003")
    assert CHANCE in record.reason
    assert sorted(len(members(grid.store, attempt)) for attempt in grid.store.attempts()) == [1, 10, 10]
    assert [attempt.number for attempt in grid.store.attempts("row-0003")] == [1, 2]
    assert grid.regions["us-east-1"].ran.count("row-0003") == 2
    assert len(grid.regions["us-east-1"].ran) == 21


def test_a_row_with_an_error_that_it_would_raise_again_is_not_tried_again(tmp_path):
    grid = bench(tmp_path, 20, behaviour=Behaviour(**SMALL, fails={"row-0003": MISTAKE}), retries=1)
    grid.run()
    assert grid.states() == {"done": 19, "failed": 1}
    assert grid.regions["us-east-1"].ran.count("row-0003") == 1


def test_of_a_job_that_is_lost_only_the_rows_are_run_again_that_were_not_done(tmp_path):
    behaviour = Behaviour(**SMALL, cuts={"row-0000": (500.0, "InternalServerError: We encountered an internal error.")})
    grid = bench(tmp_path, 10, behaviour=behaviour)
    grid.run()
    grid.judge()
    assert grid.states() == {"done": 10}
    # Four were done within 500 s; the fifth was begun, and is begun anew.
    ran = grid.regions["us-east-1"].ran
    assert sorted(ran) == sorted([f"row-{number:04}" for number in range(10)] + [f"row-{n:04}" for n in range(4, 10)])
    first, second = grid.store.attempts()
    assert first.pack == second.pack
    assert [record.task.key for record in members(grid.store, second)] == [f"row-{n:04}" for n in range(4, 10)]


def test_rows_are_done_while_their_job_still_runs(tmp_path):
    grid = bench(tmp_path, 10)
    while not grid.states().get("done"):
        assert grid.step()
    assert grid.store.open_count() == 1
    assert grid.states()["placed"] >= 8
    grid.run()
    done = [event for event in grid.store.events() if event.now == "done"]
    assert len(done) == 10
    assert done[-1].at_s - done[0].at_s > 900


def test_a_row_that_failed_says_so_while_its_job_still_runs(tmp_path):
    grid = bench(tmp_path, 10, behaviour=Behaviour(**SMALL, fails={"row-0000": MISTAKE}))
    while not grid.store.task("row-0000").reason:
        assert grid.step()
    assert grid.store.open_count() == 1
    assert (grid.store.task("row-0000").state, grid.store.task("row-0000").reason) == ("placed", MISTAKE)


def test_a_mistake_in_the_script_costs_three_jobs_of_a_thousand_rows(tmp_path):
    behaviour = Behaviour(**SMALL, fails={f"row-{number:04}": MISTAKE for number in range(1_000)})
    grid = bench(tmp_path, 1_000, behaviour=behaviour, brake=3)
    grid.run()
    assert grid.store.grid().state == "paused"
    assert "NameError" in grid.store.grid().why
    assert grid.regions["us-east-1"].calls["create"] == 3


def test_a_budget_counts_a_job_with_the_limits_of_all_its_rows(tmp_path):
    # Ten rows of 600 s at most, and 600 s of forming: 1.83 dollars at worst, of which two do not fit into three.
    grid = bench(tmp_path, 40, budget_usd=3.0)
    most = 0
    while grid.step():
        most = max(most, grid.store.open_count())
    assert most == 1
    assert grid.states() == {"done": 40}
    assert grid.regions["us-east-1"].usd() < 3.0


def test_a_stop_ends_the_job_and_the_rows_that_are_done_stay_done(tmp_path):
    grid = bench(tmp_path, 10)
    while not grid.states().get("done"):
        grid.step()
    grid.store.change_grid("stopping", grid.clock.now, fenced=False)
    grid.run()
    grid.judge()
    states = grid.states()
    assert set(states) == {"done", "stopped"}
    assert states["done"] < 10
    assert grid.store.again(["stopped"], grid.clock.now) == states["stopped"]
    grid.run()
    assert grid.states() == {"done": 10}
    assert all(grid.regions["us-east-1"].ran.count(f"row-{number:04}") <= 2 for number in range(10))


def test_a_job_that_one_row_ends_costs_the_others_nothing_and_the_row_runs_alone(tmp_path):
    behaviour = Behaviour(**SMALL, cuts={"row-0000": (60.0, "AlgorithmError: exit code 137, out of memory")})
    grid = bench(tmp_path, 10, behaviour=behaviour, retries=1)
    grid.run()
    assert grid.states() == {"done": 10}
    sizes = sorted(len(members(grid.store, attempt)) for attempt in grid.store.attempts())
    assert sizes == [1, 9, 10]
    assert grid.store.task("row-0000").retries_left == 0
    assert grid.store.task("row-0005").retries_left == 1


def test_each_row_bears_an_equal_part_of_what_its_job_costs(tmp_path):
    grid = bench(tmp_path, 10)
    grid.run()
    usd = [row.usd for row in rows_of(grid.store)]
    assert usd == pytest.approx([1_200 / 3600 / 10] * 10)
    assert {row.job for row in rows_of(grid.store)} == {grid.store.attempts()[0].name}


def test_a_lost_answer_holds_all_rows_of_a_job_back_and_makes_no_second_one(tmp_path):
    grid = bench(tmp_path, 200, behaviour=Behaviour(**SMALL, lost=0.2, late=0.2))
    grid.run()
    grid.judge()
    assert grid.states() == {"done": 200}
    ran = grid.regions["us-east-1"].ran
    assert len(ran) == len(set(ran)) == 200


@pytest.mark.parametrize("point", ["after intents", "after create", "after sent", "before described", "after news"])
def test_a_controller_that_is_killed_anywhere_loses_no_row_and_runs_none_twice(tmp_path, point):
    left = [6]

    def kill(at):
        if at == point and left[0]:
            left[0] -= 1
            raise Killed(at)

    grid = bench(tmp_path, 60, retries=0)
    grid.kill = kill
    grid.run()
    grid.judge()
    assert grid.states() == {"done": 60}
    assert sorted(grid.regions["us-east-1"].ran) == [f"row-{number:04}" for number in range(60)]


def test_rows_that_shared_jobs_go_on_so_where_the_grid_packs_no_more(tmp_path):
    behaviour = Behaviour(**SMALL, cuts={"row-0000": (500.0, "InternalServerError: We encountered an internal error.")})
    grid = bench(tmp_path, 20, behaviour=behaviour, parallel=1)
    while not any(attempt.state is AttemptState.ENDED for attempt in grid.store.attempts()):
        grid.step()
    grid.store.change_rules(Rules(brake=0))
    grid.run()
    assert grid.states() == {"done": 20}
    assert grid.regions["us-east-1"].ran.count("row-0000") == 1


TASK = Task(key="a")
ATTEMPT = Attempt(task="a", number=1, name="g-a1", region="r", instance_type="ml", count=1, pack="p")


def outcome(state, reason=""):
    return RowOutcome(state=state, reason=reason)


def verdict(name, reason="words"):
    return Verdict(ending=ENDINGS[name], reason=reason)


@pytest.mark.parametrize(
    ("job", "own", "others", "ending", "pack"),
    [
        ("OK", "done", [], "OK", "p"),
        ("OK", "failed", [], "USER", ""),
        ("OK", None, [], "USER", "p"),
        ("OK", "running", [], "USER", "p"),
        ("SERVICE", "done", [], "OK", "p"),
        ("SERVICE", "running", [], "SERVICE", "p"),
        ("CAPACITY", None, [], "CAPACITY", "p"),
        ("USER", None, [], "USER", "p"),
        ("USER", None, ["running"], "UNBEGUN", "p"),
        ("USER", "running", ["running"], "USER", f"p-{TASK.key_hash}"),
        ("TIME", "running", ["running"], "TIME", "p"),
        ("TIME", None, ["running"], "UNBEGUN", "p"),
        ("STOPPED", "running", [], "STOPPED", "p"),
    ],
)
def test_what_follows_for_a_row_is_said_by_the_record_first_and_by_the_job_else(job, own, others, ending, pack):
    outcomes = {f"other-{number}": outcome(state) for number, state in enumerate(others)}
    outcomes |= {TASK.key_hash: outcome(own)} if own else {}
    end = row_end(TASK, ATTEMPT, verdict(job), outcomes)
    assert (end.verdict.ending.name, end.pack) == (ending, pack)


def test_a_job_of_which_every_row_failed_counts_as_failed(tmp_path):
    both = {"a": outcome("failed", MISTAKE), "b": outcome("failed", "other")}
    assert job_verdict(verdict("OK"), both) == verdict("ERROR", MISTAKE)
    assert job_verdict(verdict("OK"), both | {"c": outcome("done")}).ending.name == "OK"
    assert job_verdict(verdict("SERVICE"), both).ending.name == "SERVICE"
    assert job_verdict(verdict("OK"), {}).ending.name == "OK"

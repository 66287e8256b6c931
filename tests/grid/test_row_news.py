"""What rows that share a job have done is asked for while it runs, once in a while."""

import threading

import pytest

from raysm.errors import ServiceError
from raysm.grid.outside import Silence
from raysm.grid.row_news import NEWS_S, RowNews, ask_outcomes
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench


def bench(folder, behaviour, rows=8, pack=4):
    tasks = [Task(key=f"row-{number}", position=number, max_runtime_s=600) for number in range(rows)]
    rules = Rules(brake=0, pack=pack)
    return Bench(folder, regions={"us-east-1": behaviour}, rules=rules, tasks=tasks)


def test_it_is_asked_once_a_minute_of_each_job_that_runs(tmp_path):
    grid = bench(tmp_path, Behaviour(start_s=60, run_s=600))
    began_s = grid.clock.now
    while not grid.store.running_packs():
        grid.step()
    while grid.clock.now < began_s + 1_200:
        grid.step()
    calls = grid.regions["us-east-1"].calls["rows"]
    assert 2 * 14 <= calls <= 2 * (1_200 / NEWS_S + 1)


def test_a_region_that_is_silent_meanwhile_ends_nothing(tmp_path):
    behaviour = Behaviour(start_s=60, run_s=300)
    grid = bench(tmp_path, behaviour)
    behaviour.silent = ((grid.clock.now + 300, grid.clock.now + 3_000),)
    grid.run()
    grid.judge()
    assert grid.states() == {"done": 8}
    assert len(grid.store.attempts()) == 2


def test_regions_are_asked_side_by_side_where_time_passes_meanwhile(tmp_path):
    behaviours = {name: Behaviour(start_s=60, run_s=300, quota=1) for name in ("us-east-1", "eu-west-1")}
    tasks = [Task(key=f"row-{number}", position=number, max_runtime_s=600) for number in range(8)]
    grid = Bench(tmp_path, regions=behaviours, rules=Rules(brake=0, pack=4), tasks=tasks)
    while len(grid.store.running_packs()) < 2:
        grid.step()
    grid.clock.now += 301
    grid.limiter.moment, both = lambda: grid.clock.now, threading.Barrier(2)
    for region in grid.regions.values():

        def outcomes(attempt, known=region.outcomes):
            # Neither is answered before the other one is asked.
            both.wait(60)
            return known(attempt)

        region.outcomes = outcomes
    RowNews(grid.store, grid.controller._outside).step(grid.clock.now)
    assert not both.broken
    # The first row of each job.
    assert grid.states() == {"done": 2, "placed": 6}


def test_who_asks_a_silent_region_is_told_so(tmp_path):
    behaviour = Behaviour(start_s=60, run_s=600)
    grid = bench(tmp_path, behaviour)
    while not grid.store.running_packs():
        grid.step()
    behaviour.silent = ((0, float("inf")),)
    with pytest.raises(Silence):
        ask_outcomes(grid.controller._outside, grid.store.running_packs()[0], grid.clock.now)


def test_an_s3_that_asks_for_fewer_calls_is_asked_later_and_ends_nothing(tmp_path):
    grid = bench(tmp_path, Behaviour(start_s=60, run_s=300))
    region = grid.regions["us-east-1"]
    known, answers = region.outcomes, iter([ServiceError("Please reduce your request rate.", code="SlowDown")] * 3)

    def outcomes(attempt):
        if (error := next(answers, None)) is not None:
            raise error
        return known(attempt)

    region.outcomes = outcomes
    grid.run()
    grid.judge()
    assert next(answers, None) is None
    assert grid.states() == {"done": 8}


def test_a_grid_without_packs_asks_nothing(tmp_path):
    grid = bench(tmp_path, Behaviour(), pack=None)
    grid.run()
    assert grid.regions["us-east-1"].calls["rows"] == 0

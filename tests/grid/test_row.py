"""What became of each row: one query for all of them."""

import pytest

from raysm.grid.row import rows_of
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench


def test_before_anything_is_sent_a_row_has_its_columns_and_nothing_else(tmp_path):
    bench = Bench(tmp_path, tasks=[Task(key="a", parameters={"lr": 0.1}), Task(key="b", position=1)])
    first, second = rows_of(bench.store)
    assert (first.key, first.state, first.attempts, first.parameters) == ("a", "waiting", 0, {"lr": 0.1})
    assert (second.job, second.region, second.usd, second.spot) == (None, None, None, None)


def test_a_row_that_is_done_has_its_last_job_and_all_of_its_dollars(tmp_path):
    regions = {"r": Behaviour(run_s=3600, fails={"row-0": "AlgorithmError: no"})}
    bench = Bench(tmp_path, rows=2, regions=regions, rules=Rules(brake=0, retries=1))
    bench.run()
    failed, done = rows_of(bench.store)
    assert (failed.state, failed.attempts, done.state, done.attempts) == ("failed", 2, "done", 1)
    # 1 USD an hour, two times an hour and once.
    assert (failed.usd, done.usd) == (pytest.approx(2.0), pytest.approx(1.0))
    assert failed.job.endswith("-a2")
    assert (done.region, done.instance_type, done.count, done.spot) == ("r", "ml.m5.large", 1, False)
    assert done.ended_s > done.started_s


def test_where_a_price_is_unknown_the_cost_is(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"r": Behaviour(usd_per_hour=None)})
    bench.run()
    (row,) = rows_of(bench.store)
    assert row.usd is None


def test_rows_of_a_state_alone_and_as_json(tmp_path):
    bench = Bench(tmp_path, rows=3, rules=Rules(brake=0, parallel=1))
    bench.step()
    assert [row.key for row in rows_of(bench.store, "placed")] == ["row-0"]
    assert next(rows_of(bench.store, "waiting")).as_dict()["state"] == "waiting"

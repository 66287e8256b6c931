"""Jobs of the grid's name that nobody waits for: stopped, and paid for as waste."""

from raysm.grid.attempt import Attempt
from raysm.grid.conclusion import live_strays
from raysm.grid.ledger import money
from raysm.grid.task import Task
from tests.support.grids import TYPE, Bench


def stray(bench, key, region="eu-west-1"):
    """Have a job run that another store of this grid sent."""
    task = Task(key=key)
    name = bench.store.grid().job_name(task, 9)
    job = Attempt(task=key, number=9, name=name, region=region, instance_type=TYPE, count=1)
    bench.regions[region].create(task, job)
    return bench.regions[region].lives[name]


def test_a_job_of_a_store_that_was_lost_is_stopped_and_no_second_one_runs_beside_it(tmp_path):
    bench = Bench(tmp_path, rows=12)
    bench.step()
    life = stray(bench, "row-11")
    bench.run()
    assert life.asked_s is not None
    assert bench.states() == {"done": 12}
    # Its price is in no book of ours: said so, not counted as nothing.
    assert money(bench.store, bench.clock.now).unpriced == 1 if life.runs else True


def test_a_job_of_another_grid_is_none_of_ours(tmp_path):
    bench = Bench(tmp_path, rows=1)
    bench.step()
    name = "x" + bench.store.grid().prefix + "k-a1"
    other = Attempt(task="k", number=1, name=name, region="us-east-1", instance_type=TYPE, count=1)
    bench.regions["us-east-1"].create(Task(key="k"), other)
    bench.run()
    assert bench.regions["us-east-1"].lives[name].asked_s is None
    assert live_strays(bench.store, bench.clock.now, 0) == []


def test_the_grid_is_not_over_before_its_strays_are(tmp_path):
    bench = Bench(tmp_path, rows=1)
    bench.step()
    stray(bench, "row-0", "us-east-1")
    bench.run()
    assert all(life.ended_s <= bench.clock.now for life in bench.regions["us-east-1"].lives.values())

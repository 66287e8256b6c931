"""One look at all jobs: List in pages, and Describe only of what has changed."""

import math

import pytest

from raysm.core.client.job.description import Description, Status
from raysm.core.protocol.job_api import TRAINING
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.rates import keep_last_rate
from raysm.features.grid.region_poll import PAUSE_S
from raysm.features.grid.row import Row
from raysm.features.grid.row_view import row_views
from raysm.features.grid.rules import Rules
from raysm.features.grid.snapshot import snapshot
from tests.support.grid_world import Behaviour, changed, overlaps
from tests.support.grids import TYPE, Bench

RULES = Rules(brake=0, rate="images_per_s")


def bench_of(tmp_path, rules=RULES, **behaviour):
    regions = {
        "us": Behaviour(start_s=60, run_s=600, speed=750.0),
        "eu": Behaviour(start_s=60, run_s=600, speed=250.0),
    }
    return Bench(
        tmp_path,
        rows=8,
        regions={name: changed(each, **behaviour) for name, each in regions.items()},
        rules=rules,
    )


def until_running(bench, number=8):
    while len(bench.store.attempts.running_jobs()) < number:
        bench.step()
    # The next look at the metrics is a minute after the last.
    for _ in range(8):
        bench.step()


def test_the_rates_of_all_jobs_that_run_are_added_up_by_region_and_in_all(tmp_path):
    bench = bench_of(tmp_path)
    until_running(bench)
    view = snapshot(bench.store, bench.clock.now)
    by_region = {each.region: (each.rate, each.instances) for each in view.regions}
    assert all(
        rate == count * {"us": 750.0, "eu": 250.0}[name]
        for name, (rate, count) in by_region.items()
    )
    assert view.rate == sum(rate for rate, _ in by_region.values())
    assert view.rate_unit == "images/s"
    assert view.rates[-1][1] == view.rate
    assert {row.rate for row in row_views(bench.store)} == {750.0, 250.0}


def test_a_region_that_does_not_answer_has_no_rate_and_ends_no_grid(tmp_path):
    bench = bench_of(tmp_path)
    until_running(bench)
    now = bench.clock.now
    bench.regions["us"].behaviour.silent = ((now, now + 300),)
    bench.run()
    assert bench.states() == {"done": 8}


def test_what_a_job_did_that_was_never_looked_at_while_it_ran_is_the_highest_rate(tmp_path):
    bench = bench_of(tmp_path)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 0.0
    last = (
        {"MetricName": "loss", "Value": 9000.0},
        {"MetricName": "images_per_s", "Value": 1250.0},
    )
    short = Description(
        name="short",
        arn="",
        api=TRAINING,
        status=Status.COMPLETED,
        answer={"FinalMetricDataList": last},
    )
    with bench.store.database.transaction("ended", fenced=False):
        keep_last_rate(bench.store, short.name, short, bench.clock.now)
    view = snapshot(bench.store, bench.clock.now)
    assert view.highest_rate == max(rate for _, rate in view.rates) == 1250.0
    with bench.store.database.transaction("rates", fenced=False):
        bench.store.rates.keep_all({"a": 1000.0, "b": 900.0}, bench.clock.now)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 1900.0


def test_what_is_no_number_is_no_rate_and_holds_up_no_end(tmp_path):
    bench = bench_of(tmp_path)
    last = ({"MetricName": "images_per_s", "Value": math.nan},)
    ended = Description(
        name="a",
        arn="",
        api=TRAINING,
        status=Status.COMPLETED,
        answer={"FinalMetricDataList": last},
    )
    with bench.store.database.transaction("ended", fenced=False):
        keep_last_rate(bench.store, ended.name, ended, bench.clock.now)
        bench.store.rates.keep_all({"c": 5.0}, bench.clock.now)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 5.0


def stray(bench, key, region="eu-west-1"):
    """Have a job run that another store of this grid sent."""
    row = Row(key=key)
    name = bench.store.grid().job_name(row, 9)
    job = Attempt(row_key=key, number=9, name=name, region=region, instance_type=TYPE, count=1)
    bench.regions[region].create(row, job)
    return bench.regions[region].lives[name]


def test_a_job_of_a_store_that_was_lost_is_stopped_and_no_second_one_runs_beside_it(tmp_path):
    bench = Bench(tmp_path, rows=12)
    bench.step()
    for region in bench.regions.values():
        region.behaviour.stop_s = 120
    life = stray(bench, "row-11")
    bench.run()
    assert overlaps(bench.regions.values()) == []
    assert life.asked_s is not None
    assert bench.states() == {"done": 12}


def test_a_job_of_a_lost_store_that_ran_is_counted_as_one_without_a_price(tmp_path):
    bench = Bench(tmp_path, rows=12)
    bench.step()
    life = stray(bench, "row-11")
    life.started_s = life.created_s
    bench.run()
    assert life.runs
    assert bench.store.costs.money(bench.clock.now).unpriced == 1


def test_a_job_of_another_grid_is_none_of_ours(tmp_path):
    bench = Bench(tmp_path, rows=1)
    bench.step()
    name = "x" + bench.store.grid().prefix + "k-a1"
    other = Attempt(
        row_key="k", number=1, name=name, region="us-east-1", instance_type=TYPE, count=1
    )
    bench.regions["us-east-1"].create(Row(key="k"), other)
    bench.run()
    assert bench.regions["us-east-1"].lives[name].asked_s is None
    assert "stray" not in {event.now for event in bench.store.events.after()}


def test_the_grid_is_not_over_before_its_orphaned_jobs_are(tmp_path):
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(start_s=1, run_s=1)})
    bench.step()
    life = stray(bench, "row-0", "us-east-1")

    def stop(name):
        # It uses the two minutes that a job has to stop.
        life.asked_s = life.asked_s or bench.clock.now
        life.ended_s = life.asked_s + 120

    bench.regions["us-east-1"].stop = stop
    bench.run()
    assert life.asked_s is not None
    assert life.ended_s <= bench.clock.now


ONE = {"us-east-1": Behaviour(start_s=100, run_s=500)}


def test_a_job_that_list_leaves_out_is_asked_for_by_its_name(tmp_path):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    region = bench.regions["us-east-1"]
    region._order.clear()
    bench.run()
    assert bench.states() == {"done": 1}


def test_a_job_that_the_service_knows_no_more_is_taken_for_gone_only_after_a_while(tmp_path):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    region = bench.regions["us-east-1"]
    region.lives.clear()
    region._order.clear()
    sent_s = bench.clock.now
    while bench.store.attempts.all()[0].state is not AttemptState.ENDED:
        bench.step()
    assert bench.clock.now - sent_s >= 899
    assert "no longer knows the job" in bench.store.attempts.all()[0].reason


def test_a_job_that_the_service_no_longer_knows_is_counted_although_the_user_stops_the_grid(
    tmp_path,
):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    region = bench.regions["us-east-1"]
    region.lives.clear()
    region._order.clear()
    # Late enough for the first Stop to find that no Create can still be carried out.
    bench.clock.now += 200
    bench.store.change_state("stopping", bench.clock.now, fenced=False)
    bench.run()
    assert bench.states() == {"stopped": 1}
    # As if it ran to its limit of two hours, and then took two minutes to stop.
    assert bench.store.costs.money(bench.clock.now).spent_usd == pytest.approx(7320 / 3600)


def test_a_region_that_does_not_answer_is_asked_again_only_after_a_pause(tmp_path):
    # Each such call may take a minute, for which a step of all regions waits.
    bench = Bench(tmp_path, rows=1, regions={"us-east-1": Behaviour(run_s=50_000)})
    bench.step()
    region = bench.regions["us-east-1"]
    began_s = bench.clock.now
    region.behaviour.silent = ((began_s, began_s + 600),)
    region.calls["list"] = 0
    while bench.clock.now < began_s + 600:
        bench.step()
    assert 0 < region.calls["list"] <= 600 / PAUSE_S


def test_an_orphaned_job_that_the_service_knows_no_more_is_taken_for_gone_only_after_a_while(
    tmp_path,
):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    bench.step()
    region = bench.regions["us-east-1"]
    life = stray(bench, "row-0", "us-east-1")
    region.stop = lambda name: None
    bench.run_until(lambda: bench.store.orphans.open("us-east-1"))
    del region.lives[life.name]
    region._order.remove(life.name)
    began_s = bench.clock.now
    bench.run()
    assert bench.clock.now - began_s > 880


def test_wait_for_instances_is_the_services_though_the_controller_was_suspended_before_create(
    tmp_path,
):
    bench = Bench(tmp_path, rows=1, regions=dict(ONE))
    region = bench.regions["us-east-1"]
    create = region.create

    def suspend_and_create(row, attempt):
        bench.clock.now += 1000
        create(row, attempt)

    region.create = suspend_and_create
    bench.run()
    [attempt] = bench.store.attempts.all()
    assert attempt.waited_s == 100

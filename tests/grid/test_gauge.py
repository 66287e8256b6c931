"""How much work all rows do in a second together."""

import math
import re
import threading

import pytest

from raysm.client.job.description import Description, Status
from raysm.contract.events import Metric, line
from raysm.contract.job_api import TRAINING
from raysm.grid import gauge
from raysm.grid.gauge import definition, keep_last, keep_rates, unit
from raysm.grid.row import rows_of
from raysm.grid.rules import Rules
from raysm.grid.snapshot import snapshot
from tests.support.grid_world import Behaviour, changed
from tests.support.grids import Bench

RULES = Rules(brake=0, rate="images_per_s")


def bench_of(tmp_path, rules=RULES, **behaviour):
    regions = {"us": Behaviour(start_s=60, run_s=600, speed=750.0), "eu": Behaviour(start_s=60, run_s=600, speed=250.0)}
    return Bench(
        tmp_path, rows=8, regions={name: changed(each, **behaviour) for name, each in regions.items()}, rules=rules
    )


def until_running(bench, number=8):
    while len(bench.store.running()) < number:
        bench.step()
    # The next look at the metrics is a minute after the last.
    for _ in range(8):
        bench.step()


def test_the_service_finds_what_a_program_reports():
    (found,) = re.findall(definition("images_per_s").regex, line(Metric(name="images_per_s", value=1.25e-05, step=3)))
    assert float(found) == 1.25e-05
    assert re.findall(definition("images").regex, line(Metric(name="images_per_s", value=1.0))) == []


@pytest.mark.parametrize(
    ("metric", "text"), [("images_per_s", "images/s"), ("MB_per_min", "MB/min"), ("speed", "speed")]
)
def test_a_unit_is_written_as_people_do(metric, text):
    assert unit(metric) == text


def test_the_rates_of_all_jobs_that_run_are_added_up_by_region_and_in_all(tmp_path):
    bench = bench_of(tmp_path)
    until_running(bench)
    view = snapshot(bench.store, bench.clock.now)
    by_region = {each.region: (each.rate, each.instances) for each in view.regions}
    assert all(rate == count * {"us": 750.0, "eu": 250.0}[name] for name, (rate, count) in by_region.items())
    assert view.rate == sum(rate for rate, _ in by_region.values())
    assert view.rate_unit == "images/s"
    assert view.rates[-1][1] == view.rate
    assert {row.rate for row in rows_of(bench.store)} == {750.0, 250.0}


def test_a_region_is_asked_once_a_minute_however_many_jobs_run_there(tmp_path):
    bench = bench_of(tmp_path)
    took_s = bench.run()
    assert 0 < bench.regions["us"].calls["metrics"] <= took_s / 60 + 1


def test_regions_are_asked_side_by_side_where_time_passes_meanwhile(tmp_path):
    bench = bench_of(tmp_path)
    until_running(bench)
    bench.limiter.moment, both = lambda: bench.clock.now, threading.Barrier(2)
    for region in bench.regions.values():

        def rates(names, metric, known=region.rates):
            # Neither is answered before the other one is asked.
            both.wait(60)
            return known(names, metric)

        region.rates = rates
    view = snapshot(bench.store, bench.clock.now)
    gauge.Gauge(bench.store, bench.controller._outside).step(bench.clock.now + 1)
    assert not both.broken
    assert snapshot(bench.store, bench.clock.now + 1).rate == view.rate > 0


def test_without_a_metric_nobody_is_asked(tmp_path):
    bench = bench_of(tmp_path, Rules(brake=0))
    bench.run()
    assert bench.regions["us"].calls["metrics"] == 0
    assert snapshot(bench.store, bench.clock.now).rate_unit == ""


def test_jobs_that_say_nothing_or_are_over_have_no_rate(tmp_path):
    bench = bench_of(tmp_path, speed=None)
    until_running(bench)
    assert snapshot(bench.store, bench.clock.now).rate is None
    bench.run()
    assert snapshot(bench.store, bench.clock.now).rate is None


def test_what_a_job_did_that_was_never_looked_at_while_it_ran_is_the_highest_rate(tmp_path):
    bench = bench_of(tmp_path)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 0.0
    last = ({"MetricName": "loss", "Value": 9000.0}, {"MetricName": "images_per_s", "Value": 1250.0})
    short = Description(
        name="short", arn="", api=TRAINING, status=Status.COMPLETED, answer={"FinalMetricDataList": last}
    )
    with bench.store.database.transaction("ended", fenced=False):
        keep_last(bench.store, short.name, short, bench.clock.now)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 1250.0
    with bench.store.database.transaction("rates", fenced=False):
        keep_rates(bench.store, {"a": 1000.0, "b": 900.0}, bench.clock.now)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 1900.0


def test_what_is_no_number_is_no_rate_and_holds_up_no_end(tmp_path):
    bench = bench_of(tmp_path)
    last = ({"MetricName": "images_per_s", "Value": math.nan},)
    ended = Description(name="a", arn="", api=TRAINING, status=Status.COMPLETED, answer={"FinalMetricDataList": last})
    with bench.store.database.transaction("ended", fenced=False):
        keep_last(bench.store, ended.name, ended, bench.clock.now)
        keep_rates(bench.store, {"a": math.nan, "b": math.inf, "c": 5.0}, bench.clock.now)
    assert snapshot(bench.store, bench.clock.now).highest_rate == 5.0


def test_a_region_that_does_not_answer_for_metrics_ends_no_job(tmp_path):
    bench = bench_of(tmp_path, rates={"metrics": 1e-9})
    bench.run()
    assert bench.states() == {"done": 8}
    assert sum(region.throttled for region in bench.regions.values()) > 0


def test_a_curve_of_a_month_keeps_every_second_point_when_it_is_full(tmp_path):
    bench = bench_of(tmp_path)
    with bench.store.database.transaction("rates", fenced=False):
        for minute in range(gauge.MOST_POINTS + 1):
            keep_rates(bench.store, {}, 60.0 * minute)
    points = [row[0] for row in bench.store.database.connection.execute("SELECT at_s FROM rate_history ORDER BY 1")]
    assert points[:3] == [0.0, 120.0, 240.0]
    assert len(points) == gauge.MOST_POINTS // 2 + 1


def test_where_nothing_is_billed_it_may_ask_more_often(tmp_path):
    bench = bench_of(tmp_path)
    until_running(bench)
    region, asked = bench.regions["us"], bench.regions["us"].calls["metrics"]
    often = gauge.Gauge(bench.store, bench.controller._outside, pause_s=gauge.FREE_S)
    for seconds in (0, 4, 5, 10):
        often.step(bench.clock.now + seconds)
    assert region.calls["metrics"] == asked + 3

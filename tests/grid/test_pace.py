"""How long jobs take by place, and when those that are open will end."""

import pytest

from raysm.grid.attempt import Attempt
from raysm.grid.estimates import LAST, Forecast
from raysm.grid.place import Outlook, Place
from raysm.grid.task import Task
from tests.support.grid_world import Behaviour
from tests.support.grids import TYPE, Bench

EAST = Place(region="us-east-1", instance_type=TYPE)
WEST = Place(region="eu-west-1", instance_type=TYPE)


def learned(pairs, ending="OK"):
    pace = Forecast()
    for number, (place, seconds, task) in enumerate(pairs):
        attempt = Attempt(
            task=task.key, number=1, name=f"a{number}", region=place.region, instance_type=TYPE, count=1,
            ending=ending, sent_s=100.0, ended_s=100.0 + seconds,
        )  # fmt: skip
        pace.learn(task, attempt)
    return pace


@pytest.fixture
def bench(tmp_path):
    # Three jobs run, and two rows wait.
    regions = {"us-east-1": Behaviour(quota=2), "eu-west-1": Behaviour(quota=1)}
    bench = Bench(tmp_path, rows=5, regions=regions)
    while bench.store.open_count() < 3:
        bench.step()
    return bench


def test_the_pace_of_a_place_is_the_median_of_its_jobs_by_the_work_of_their_rows(bench):
    hour, two = Task(key="a"), Task(key="b", expected_s=7200)
    pace = learned([(EAST, 3600, hour), (EAST, 7200, two), (EAST, 36_000, hour), (WEST, 1800, hour)])
    assert pace.outlook(bench.store, bench.clock.now).takes_s == {EAST: 1.0, WEST: 0.5}


def test_open_jobs_end_by_the_pace_of_their_place(bench):
    pace = learned([(EAST, 3600, Task(key="a")), (WEST, 1800, Task(key="a"))])
    outlook = pace.outlook(bench.store, bench.clock.now)
    sent = {attempt.region: attempt.sent_s for attempt in bench.store.open_attempts()}
    assert outlook.waiting == 2
    assert [round(at - sent["us-east-1"]) for at in outlook.free_s[EAST]] == [3600, 3600]
    assert [round(at - sent["eu-west-1"]) for at in outlook.free_s[WEST]] == [1800]


def test_a_job_that_is_late_is_late_for_as_long_again(bench):
    pace = learned([(EAST, 3600, Task(key="a")), (WEST, 1800, Task(key="a"))])
    (sent_s,) = [each.sent_s for each in bench.store.open_attempts() if each.region == "eu-west-1"]
    now = sent_s + 1800 + 500
    assert pace.outlook(bench.store, now).free_s[WEST] == [pytest.approx(now + 500)]


def test_what_failed_says_nothing_and_one_place_alone_has_nothing_to_be_compared_with(bench):
    pairs = [(EAST, 3600, Task(key="a")), (WEST, 1800, Task(key="a"))]
    assert learned(pairs, ending="USER").outlook(bench.store, bench.clock.now) == Outlook()
    assert learned(pairs[:1]).outlook(bench.store, bench.clock.now) == Outlook()


def test_of_very_many_rows_the_end_is_not_looked_at_yet(bench):
    pace = learned([(EAST, 3600, Task(key="a")), (WEST, 1800, Task(key="a"))])
    bench.store.add([Task(key=f"more-{number}", position=number) for number in range(LAST)])
    assert pace.outlook(bench.store, bench.clock.now) == Outlook()

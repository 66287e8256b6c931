"""Stopping a grid: by its controller, or by the command itself if no controller holds the lease."""

import time

import pytest

from raysm.grid.database import this_process
from raysm.grid.local_grids import read_target
from raysm.grid.rules import Rules
from raysm.grid.stop_grid import stop_grid
from raysm.grid.store import Store, path_of
from raysm.grid.task import Task
from tests.grid.test_running import Bench, fake, home  # noqa: F401

ROWS = [{"key": "a", "lr": 0.1}, {"key": "b", "lr": 0.2}]


@pytest.fixture
def left(fake, home, tmp_path):  # noqa: F811
    """A grid with two open jobs, whose controller has ended."""
    bench = Bench(fake, tmp_path)
    running = bench.open(bench.request(ROWS))
    while len(bench.sent) < 2:
        bench.now += running.step(bench.now)
    running.close()
    store = Store(path_of("drives"))
    yield bench, store
    store.close()


def services(bench):
    return lambda target: bench.fake.service


def test_without_a_controller_the_open_jobs_are_stopped_and_named(left):
    bench, store = left
    done = stop_grid(store, path_of("drives"), services(bench))
    assert sorted(done.stopped) == sorted(bench.sent) == sorted(bench.fake.sagemaker.stopped)
    assert (done.open, done.has_controller) == (0, False)
    assert store.states() == {"stopped": 2}
    assert store.grid().state == "closed"


def test_with_a_controller_only_the_wish_is_recorded(left):
    bench, store = left
    other = Store(path_of("drives"))
    other.database.take_lease(this_process(), time.time())
    done = stop_grid(store, path_of("drives"), services(bench))
    assert (done.stopped, done.open, done.has_controller) == ((), 2, True)
    assert bench.fake.sagemaker.stopped == []
    assert store.grid().state == "stopping"
    other.close()


def test_without_a_known_target_nothing_is_asked_of_another_service(left):
    bench, store = left
    path_of("drives").with_suffix(".target").unlink()
    assert read_target(path_of("drives")) is None
    done = stop_grid(store, path_of("drives"), services(bench))
    assert (done.stopped, done.open) == ((), 2)
    assert bench.fake.sagemaker.stopped == []


def test_a_grid_without_open_jobs_is_closed(tmp_path):
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0.0)
    store.add([Task(key="a")])
    assert stop_grid(store, tmp_path / "g.db", lambda target: None).open == 0
    assert (store.states(), store.grid().state) == ({"stopped": 1}, "closed")
    store.close()

"""The handle on a grid that there is, in another process than the one that runs it."""

import time

import pytest

from raysm.contract.clock import Clock
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.rules import Rules
from raysm.grid.store import Store, path_of
from raysm.grid.task import Task
from raysm.views.grid.handle import attach_grid
from tests.support.homes import in_home


@pytest.fixture
def store(tmp_path):
    with in_home(tmp_path):
        path_of("drives").parent.mkdir(parents=True)
        store = Store(path_of("drives"))
        store.make("drives", rules=Rules(), now=0.0)
        store.add([Task(key=key, position=place) for place, key in enumerate("abc")])
        with store.database.transaction("test", fenced=False):
            store.move_task("a", TaskState.WAITING, TaskState.DONE, 1.0)
            store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="exit code: 1 & <b>")
        yield store
        store.database.close()


def test_a_grid_is_found_by_its_name_and_one_that_is_not_there_is_said_at_once(store):
    assert repr(attach_grid("drives")) == "GridHandle('drives')"
    with pytest.raises(InvalidRequest, match="there is no grid 'drivse' .* there are drives"):
        attach_grid("drivse")


def test_its_moments_are_those_of_its_service_whose_hours_may_pass_in_minutes(store):
    # Of the machine's clock every job of a fast one is of long ago, and every place that is left alone for ever.
    assert attach_grid("drives").status().at_s == pytest.approx(time.time(), abs=600)
    store.change_clock(Clock(speed=60.0, begun_s=time.time() - 3600))
    assert attach_grid("drives").status().at_s == pytest.approx(time.time() + 59 * 3600, abs=36_000)


def test_its_rows_and_its_state_are_what_the_store_has(store):
    grid = attach_grid("drives")
    assert [(row.key, row.state) for row in grid.rows()] == [("a", "done"), ("b", "failed"), ("c", "waiting")]
    assert [row.key for row in grid.rows("failed")] == ["b"]
    assert grid.status().states == {"done": 1, "failed": 1, "waiting": 1}
    with pytest.raises(InvalidRequest, match="a row's state is one of waiting"):
        grid.rows("lost")


def test_what_is_wished_is_found_by_whoever_runs_it(store):
    grid = attach_grid("drives")
    assert grid.retry() == 1
    assert store.states() == {"done": 1, "waiting": 2}
    assert grid.extend([{"key": "c"}, {"key": "d"}]) == 1
    assert grid.stop() == 0
    assert store.grid().state == "stopping"


def test_what_is_over_is_not_stopped(store):
    store.change_grid("closed", 2.0, fenced=False)
    assert attach_grid("drives").stop() == 0
    assert store.grid().state == "closed"


def test_a_report_has_what_failed_first_and_markup_as_text(store, tmp_path):
    path = attach_grid("drives").report(tmp_path / "out.html")
    text = path.read_text()
    assert text.index("<td>b</td>") < text.index("<td>c</td>") < text.index("<td>a</td>")
    assert "exit code: 1 &amp; &lt;b&gt;" in text

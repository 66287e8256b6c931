"""A grid that runs in this process says what becomes of its rows, as it does."""

import io

import pytest
from rich.console import Console

from raysm.cli.grid_events import follow
from raysm.contract.home import Clock
from raysm.grid.attempt import TaskState
from raysm.grid.rules import Rules
from raysm.grid.store import Store
from raysm.grid.task import Task


class HandRunning:
    """A controller whose one step is done by hand."""

    def __init__(self, store, added):
        self.store, self.added, self.clock = store, added, Clock()

    def run(self, sleep):
        with self.store.database.transaction("test", fenced=False):
            reason = "exit code: 1\nTraceback (most recent call last)\nexit code: 1"
            self.store.move_task("b[0]", TaskState.WAITING, TaskState.FAILED, 2.0, reason=reason)
        sleep(0.0)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0)
    store.add([Task(key="a"), Task(key="b[0]", position=1)])
    with store.database.transaction("test", fenced=False):
        store.move_task("a", TaskState.WAITING, TaskState.DONE, 1.0)
    yield store
    store.database.close()


def lines(store, added):
    stream = io.StringIO()
    follow(HandRunning(store, added), Console(file=stream, width=20))
    return stream.getvalue().splitlines()


def test_each_row_that_changes_is_one_line_with_its_reason(store):
    assert lines(store, added=2) == ["a: done", "b[0]: failed exit code: 1"]


def test_of_a_grid_that_goes_on_only_what_is_new_is_said(store):
    assert lines(store, added=0) == ["b[0]: failed exit code: 1"]


def test_of_a_grid_that_rows_have_joined_what_was_before_is_not_said_again(store):
    store.add([Task(key="c", position=2)])
    assert lines(store, added=1) == ["b[0]: failed exit code: 1"]


def test_of_a_step_in_which_very_many_rows_change_each_is_said(store):
    keys = [f"r{number}" for number in range(2_500)]
    store.add(Task(key=key) for key in keys)
    with store.database.transaction("test", fenced=False):
        for key in keys:
            store.move_task(key, TaskState.WAITING, TaskState.STOPPED, 1.5)
    assert len(lines(store, added=2_502)) == 2_502

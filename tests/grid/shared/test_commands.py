"""Wishes from other machines: done once each, in their order, by whoever runs the grid."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rules import Rules
from raysm.grid.shared.sharing import leave_command, run_commands
from raysm.grid.store import Store
from raysm.grid.task import Task
from tests.support.grid_world import Clock
from tests.support.shared_grids import FakeObjects


@pytest.fixture
def store():
    store = Store(":memory:")
    store.make("g", rules=Rules(), now=1.0)
    store.add([Task(key="a"), Task(key="b")])
    yield store
    store.database.close()


@pytest.fixture
def objects():
    return FakeObjects(Clock())


def test_a_stop_is_a_state_of_the_grid_and_its_object_is_gone(store, objects):
    leave_command(objects, "stop", 5.0)
    run_commands(objects, store, 6.0)
    assert store.grid().state == "stopping"
    assert objects.names("") == []


def test_a_grid_that_is_over_is_not_stopped(store, objects):
    store.change_grid("closed", 4.0, fenced=False)
    leave_command(objects, "stop", 5.0)
    run_commands(objects, store, 6.0)
    assert store.grid().state == "closed"


def test_a_retry_after_a_stop_is_done_after_it(store, objects):
    leave_command(objects, "retry", 7.0)
    leave_command(objects, "stop", 5.0)
    run_commands(objects, store, 8.0)
    assert store.grid().state == "open"


def test_what_failed_waits_again(store, objects):
    store.database.connection.execute("UPDATE task SET state = 'failed' WHERE key = 'a'")
    leave_command(objects, "retry", 5.0)
    run_commands(objects, store, 6.0)
    assert store.states() == {"waiting": 2}


def test_what_nobody_knows_is_refused_and_what_a_newer_one_left_stays(store, objects):
    with pytest.raises(InvalidRequest, match="takes stop, retry, got 'explode'"):
        leave_command(objects, "explode", 5.0)
    objects.put("commands/000000000005000-abcd-explode", b"")
    run_commands(objects, store, 6.0)
    assert objects.names("") == ["commands/000000000005000-abcd-explode"]

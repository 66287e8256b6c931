"""The result of a row: only a row that is done has one."""

import pytest

from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.row import row_result
from raysm.grid.rules import Rules
from raysm.grid.store import Store
from raysm.grid.task import Task
from raysm.request import Local


def test_a_row_that_is_not_done_has_no_result_and_the_error_says_why(tmp_path):
    service, store = Service(Local(home=str(tmp_path / "home"))), Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0.0)
    store.add([Task(key=key, position=place) for place, key in enumerate("bc")])
    with store.database.transaction("test", fenced=False):
        store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="it is broken")
    for key, message in (("b", "it is failed: it is broken"), ("c", "it is waiting"), ("d", "no row 'd'")):
        with pytest.raises(InvalidRequest, match=message):
            row_result(store, key, service)
    store.database.close()

"""The store keeps rows and what became of them, whatever happens between two calls."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.database import LeaseLost
from raysm.grid.rules import Rules
from raysm.grid.store import Store, path_of
from raysm.grid.task import Task

TASK = Task(
    key="größe/1",
    position=3,
    parameters={"lr": 0.1, "name": "x"},
    region="eu-west-1",
    instance_types=("ml.p4d.24xlarge", "ml.g5.xlarge"),
    count=2,
    spot=True,
    priority=5,
    expected_s=60.0,
    inputs={"data": "s3://b/x"},
    tags={"team": "a"},
)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "g.db")
    store.make("drives/2026 october and more words", rules=Rules(retries=4), now=1.0)
    yield store
    store.close()


def attempt(**changes):
    values = {"task": TASK.key, "number": 1, "name": "a1", "region": "r", "instance_type": "ml", "count": 1}
    return Attempt(**values | changes)


def test_a_row_comes_back_as_it_went_in(store):
    assert store.add([TASK]) == 1
    record = store.task(TASK.key)
    assert (record.task, record.state, record.retries_left) == (TASK, TaskState.WAITING, 4)


def test_a_row_that_is_not_there_is_refused_by_its_key(store):
    with pytest.raises(InvalidRequest, match="no row 'x'"):
        store.task("x")


def test_a_key_is_added_once(store):
    store.add([TASK])
    assert store.add([TASK, Task(key="b")]) == 1
    assert store.states() == {"waiting": 2}


def test_rows_that_cannot_be_made_add_nothing(store):
    def rows():
        yield TASK
        raise InvalidRequest("row 2")

    with pytest.raises(InvalidRequest):
        store.add(rows())
    assert store.states() == {}


def test_what_was_done_before_is_skipped(store):
    digest = f"t{TASK.digest}"
    store.add([TASK, Task(key="b")], template_digest="t", done=lambda each: each == digest)
    assert store.states() == {"skipped": 1, "waiting": 1}


def test_a_grid_is_made_once(store):
    run = store.grid().run
    assert store.make("other", rules=Rules(), now=2.0).run == run


def test_a_file_without_a_grid_says_what_to_do(tmp_path):
    store = Store(tmp_path / "empty.db")
    with pytest.raises(InvalidRequest, match="raysm grid run creates one"):
        store.grid()
    store.close()


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_a_name_that_is_no_files_name_is_refused(name):
    with pytest.raises(InvalidRequest, match="a grid's name"):
        path_of(name)


def test_tasks_wait_in_the_order_of_priority_then_length_then_position(store):
    store.add(
        [
            Task(key="late", position=9),
            Task(key="long", position=8, expected_s=5.0),
            Task(key="first", position=7, priority=1),
        ]
    )
    (shape,) = store.shapes()
    assert [record.task.key for record in store.waiting(shape, 0.0, 10)] == ["first", "long", "late"]


def test_tasks_of_other_regions_have_other_shapes(store):
    store.add([Task(key="a", region="x"), Task(key="b", region="y"), Task(key="c", region="x")])
    assert [len(store.waiting(shape, 0.0, 10)) for shape in store.shapes()] == [2, 1]


def test_a_task_that_is_held_does_not_wait_yet(store):
    store.add([Task(key="a")])
    store.hold("a", 50.0)
    (shape,) = store.shapes()
    assert store.waiting(shape, 49.0, 10) == []
    assert len(store.waiting(shape, 50.0, 10)) == 1


def test_a_move_from_a_state_that_is_not_there_lets_go(store):
    store.add([TASK])
    store.database.take_lease("me", 0)
    with store.database.transaction("x"):
        store.insert(attempt())
    with store.database.transaction("x"):
        sent = store.move(attempt(), 1.0, state=AttemptState.SENT)
    assert store.attempt("a1") == sent
    with pytest.raises(LeaseLost, match="a1 is no longer intended"), store.database.transaction("x"):
        store.move(attempt(), 2.0, state=AttemptState.ENDED)


def test_every_change_of_state_is_told_in_order(store):
    store.add([TASK])
    store.database.take_lease("me", 0)
    with store.database.transaction("x"):
        store.insert(attempt(intended_s=1.0))
        store.move_task(TASK.key, TaskState.WAITING, TaskState.PLACED, 2.0)
    assert [(event.was, event.now) for event in store.events()] == [("", "intended"), ("waiting", "placed")]
    assert store.events(after=1)[0].now == "placed"


def test_what_changed_is_to_be_written_back_until_it_was_as_it_is_now(store):
    store.add([TASK])
    store.database.take_lease("me", 0)
    with store.database.transaction("x"):
        store.move_task(TASK.key, TaskState.WAITING, TaskState.PLACED, 2.0)
    ((first, record),) = store.unwritten()
    assert record.state is TaskState.PLACED
    with store.database.transaction("x"):
        store.move_task(TASK.key, TaskState.PLACED, TaskState.DONE, 3.0)
    store.written([(first, TASK.key)])
    ((second, record),) = store.unwritten()
    assert record.state is TaskState.DONE
    store.written([(second, TASK.key)])
    assert store.unwritten() == []


def test_what_ended_is_tried_again_with_all_its_retries(store):
    store.add([TASK, Task(key="b")])
    store.database.take_lease("me", 0)
    with store.database.transaction("x"):
        store.move_task(TASK.key, TaskState.WAITING, TaskState.FAILED, 2.0, retries_left=0, reason="x")
    assert store.again(["failed", "waiting"], 3.0) == 1
    record = store.task(TASK.key)
    assert (record.state, record.retries_left, record.reason) == (TaskState.WAITING, 4, "")


def test_what_is_tried_again_is_written_back_as_waiting(store):
    store.add([TASK, Task(key="b")])
    store.database.take_lease("me", 0)
    with store.database.transaction("x"):
        store.move_task(TASK.key, TaskState.WAITING, TaskState.FAILED, 2.0)
    store.written((number, record.task.key) for number, record in store.unwritten())
    store.again(["failed"], 3.0)
    assert [(record.task.key, record.state) for _, record in store.unwritten()] == [(TASK.key, TaskState.WAITING)]


def test_what_create_is_owed_to_is_what_has_no_answer_yet(store):
    store.add([TASK, Task(key="b"), Task(key="c")])
    with store.database.transaction("attempts", fenced=False):
        store.insert(attempt(name="a1", state=AttemptState.INTENDED, intended_s=2.0))
        store.insert(attempt(task="b", name="b1", state=AttemptState.MAYBE, intended_s=1.0))
        store.insert(attempt(task="c", name="c1", state=AttemptState.SENT, sent_s=3.0, seen="x"))
    assert [each.name for each in store.owed()] == ["b1", "a1"]
    assert store.sent("r") == {"c1": ("x", 3.0)}
    assert store.is_doubtful("r", 5.0)
    assert not store.is_doubtful("other", 5.0)


def test_a_region_is_in_doubt_while_a_refused_job_is_looked_for(store):
    store.add([TASK])
    with store.database.transaction("attempts", fenced=False):
        store.insert(attempt(state=AttemptState.ENDED, ending="QUOTA", watch_s=100.0))
    assert (store.is_doubtful("r", 99.0), store.is_doubtful("r", 101.0)) == (True, False)

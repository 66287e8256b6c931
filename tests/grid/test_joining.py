"""Rows that join a grid: the daily query, run again."""

import json
import sqlite3

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.attempt import AGAIN, TaskState
from raysm.grid.grid_request import extend
from raysm.grid.rows.query import Query
from raysm.grid.rows.source import source_of
from raysm.grid.rules import Rules
from raysm.grid.store import Store

TEMPLATE = json.dumps({"workload": {"args": ["{lr}"]}, "options": {"limits": {"max_runtime_s": 77}}})


def made(tmp_path, source):
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(), now=0.0, template=TEMPLATE, source=json.dumps(source.description))
    return store


def test_ten_days_of_a_growing_table_have_each_key_once(tmp_path):
    connection = sqlite3.connect(tmp_path / "c.db", isolation_level=None)
    connection.execute("CREATE TABLE drives (campaign TEXT, lr REAL)")
    query = source_of(Query("SELECT campaign AS key, lr FROM drives", on=str(tmp_path / "c.db")))
    store = made(tmp_path, query)
    for day in range(10):
        connection.executemany("INSERT INTO drives VALUES (?, 0.1)", [(f"{day}-{number}",) for number in range(3)])
        assert extend(store) == 3
    assert extend(store) == 0
    assert sorted(record.task.key for record in store.tasks()) == sorted(
        f"{d}-{n}" for d in range(10) for n in range(3)
    )
    connection.close()
    store.close()


def test_a_row_that_joins_has_the_time_limit_of_all(tmp_path):
    (tmp_path / "rows.csv").write_text("key,lr,max_runtime_s\na,1,\nb,2,5\n")
    store = made(tmp_path, source_of(tmp_path / "rows.csv"))
    assert extend(store) == 2
    assert [record.task.max_runtime_s for record in store.tasks()] == [77, 5]
    store.close()


def test_a_grid_that_was_over_is_open_again(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    store.change_grid("closed", 1.0, fenced=False)
    assert extend(store, source_of([{"key": "b", "lr": 2}])) == 1
    assert store.grid().state == "open"
    store.close()


@pytest.fixture
def grid(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    extend(store, source_of([{"key": key, "lr": 0.1} for key in "abcd"]))
    with store.database.transaction("test", fenced=False):
        store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="ValueError: no")
        store.move_task("c", TaskState.WAITING, TaskState.DONE, 1.0)
        store.move_task("d", TaskState.WAITING, TaskState.PLACED, 1.0)
    yield store
    store.close()


def values(store):
    return {record.task.key: record.task.parameters["lr"] for record in store.tasks()}


def test_rows_that_are_not_done_take_the_corrected_values_of_the_source(grid):
    assert extend(grid, source_of([{"key": key, "lr": 0.2} for key in "abcd"])) == 0
    assert values(grid) == {"a": 0.2, "b": 0.2, "c": 0.1, "d": 0.1}
    grid.again(AGAIN, 2.0)
    assert grid.task("b").state == "waiting"
    assert grid.task("b").task.parameters == {"lr": 0.2}


def test_each_row_that_differs_is_named_with_its_values(grid, caplog):
    extend(grid, source_of([{"key": "a", "lr": 0.1}, {"key": "b", "lr": 0.2}, {"key": "c", "lr": 0.3}]))
    assert caplog.messages == [
        "row b takes the corrected values of the source: lr was 0.1, is 0.2",
        "row c is done and is kept; it differs from the source: lr is 0.1 here and 0.3 there; to compute it again, "
        "give it a new key",
    ]


def test_a_done_row_says_that_it_differs_until_the_source_agrees_again(grid):
    extend(grid, source_of([{"key": "c", "lr": 0.3}]))
    extend(grid, source_of([{"key": "c", "lr": 0.4}]))
    assert grid.task("c").reason == "differs from the source: lr is 0.1 here and 0.4 there"
    extend(grid, source_of([{"key": "c", "lr": 0.1}]))
    assert grid.task("c").reason == ""


def test_a_row_with_an_open_job_keeps_its_values_and_says_so(grid, caplog):
    extend(grid, source_of([{"key": "d", "lr": 0.3}]))
    assert "its open job keeps the recorded values" in caplog.text


def test_the_attempts_with_the_old_values_do_not_count_against_the_corrected_row(grid):
    grid.database.connection.execute("UPDATE task SET attempts = 3, retries_left = 0 WHERE key = 'a'")
    extend(grid, source_of([{"key": "a", "lr": 0.2}]))
    assert (grid.task("a").retries_left, grid.task("a").forgiven) == (Rules().retries, 3)


def test_values_of_columns_named_like_secrets_are_not_printed(grid, caplog):
    extend(grid, source_of([{"key": "a", "lr": 0.1, "env_API_TOKEN": "abc"}]))
    assert "env_API_TOKEN was None, is '***'" in caplog.text


def test_the_same_number_as_text_is_no_difference(grid, caplog):
    extend(grid, source_of([{"key": key, "lr": "0.1"} for key in "abcd"]))
    assert caplog.messages == []


def test_another_order_of_the_rows_is_no_difference(grid, caplog):
    extend(grid, source_of([{"key": key, "lr": 0.1} for key in "dcba"]))
    assert caplog.messages == []


def test_what_a_program_gave_cannot_be_read_again(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    with pytest.raises(InvalidRequest, match="a program gave this grid its rows"):
        extend(store)
    store.close()


def test_a_column_that_was_dropped_since_is_said_before_any_row_joins(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    with pytest.raises(InvalidRequest, match="lr"):
        extend(store, source_of([{"key": "b", "rl": 2}]))
    assert store.states() == {}
    store.close()


def test_a_grid_that_is_being_stopped_takes_no_rows(tmp_path):
    store = made(tmp_path, source_of([{"key": "a", "lr": 1}]))
    store.change_grid("stopping", 1.0, fenced=False)
    with pytest.raises(InvalidRequest, match="is being stopped"):
        extend(store, source_of([{"key": "b", "lr": 2}]))
    store.close()

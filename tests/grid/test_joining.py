"""Rows that join a grid: the daily query, run again."""

import json
import sqlite3

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.joining import extend
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

"""The states of a grid's rows in the user's database."""

import contextlib
import random
import sqlite3

import pytest

from raysm.errors import ServiceError
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.row import RETRYABLE_STATES, Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.sources.databases import database_of
from raysm.features.grid.store.store import Store
from raysm.features.grid.write_back import COLUMNS, TABLE, make_table, write_back


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "grid.db")
    store.make("drives", rules=Rules(), now=0.0)
    yield store
    store.database.close()


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "campaigns.db"
    sqlite3.connect(path).close()
    database = database_of(path)
    make_table(database)
    return database


def path_of_database(database):
    return database.name.removeprefix("sqlite:///")


def rows(database):
    with contextlib.closing(sqlite3.connect(path_of_database(database))) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {TABLE} ORDER BY task")]


def add(store, number):
    store.add([Row(key=f"k{row:04}", position=row) for row in range(number)])


def move(store, keys, was, state, **changes):
    with store.database.transaction("test", fenced=False):
        for key in keys:
            store.rows.move(key, was, state, 1.0, **changes)


def attempt(key, number=1, **changes):
    fields = {
        "row_key": key, "number": number, "name": f"g-{key}-a{number}", "region": "us-east-1", "count": 2,
        "instance_type": "ml.g5.xlarge", "state": AttemptState.ENDED, "sent_s": 1.0, "started_s": 5.0, "ended_s": 95.0,
        "billable_s": 90.0, "usd_per_hour": 2.0, "ending": "OK",
    }  # fmt: skip
    return Attempt(**fields | changes)


def insert(store, *attempts):
    with store.database.transaction("test", fenced=False):
        for each in attempts:
            store.attempts.insert(each)


def test_a_row_that_is_tried_again_is_written_back_as_waiting(store, database):
    add(store, 1)
    move(store, ["k0000"], RowState.WAITING, RowState.FAILED)
    write_back(store, database)
    store.requeue(RETRYABLE_STATES, 2.0)
    assert write_back(store, database) == 1
    assert [row["state"] for row in rows(database)] == ["waiting"]


def test_a_done_row_has_its_job_its_time_and_all_that_it_cost(store, database):
    add(store, 1)
    insert(
        store,
        attempt("k0000", ending="USER", billable_s=30.0),
        attempt("k0000", 2, region="eu-west-1"),
    )
    move(store, ["k0000"], RowState.WAITING, RowState.DONE)
    assert write_back(store, database) == 1
    (row,) = rows(database)
    assert row == {
        "grid": "drives", "task": "k0000", "state": "done", "region": "eu-west-1", "instance_type": "ml.g5.xlarge",
        "job": "g-k0000-a2", "attempts": 2, "started_s": 5.0, "ended_s": 95.0, "billable_s": 120.0,
        "usd": pytest.approx(2.0 * 2 * 120 / 3600), "reason": "",
    }  # fmt: skip
    assert set(row) == set(COLUMNS)


class CountsChanges:
    """A database whose driver says how many rows are others now, as MySQL's do, and not how many were meant."""

    def __init__(self, database):
        self.database = database

    @contextlib.contextmanager
    def transaction(self):
        with contextlib.closing(sqlite3.connect(path_of_database(self.database))) as connection:

            def execute(text, params):
                before = set(connection.execute(f"SELECT * FROM {TABLE}"))
                connection.execute(text, params)
                return len(set(connection.execute(f"SELECT * FROM {TABLE}")) - before)

            yield execute
            connection.commit()


def test_what_has_been_written_before_is_written_again_where_only_changes_are_counted(
    store, database
):
    add(store, 3)
    move(store, ["k0000", "k0001"], RowState.WAITING, RowState.PLACED)
    noted = store.rows.unwritten()
    database_of_mysql = CountsChanges(database)
    write_back(store, database_of_mysql)
    before = rows(database)
    # The process was killed before it took the notes away.
    store.database.connection.executemany(
        "INSERT INTO outbox VALUES (?, ?)", [(record.row.key, n) for n, record in noted]
    )
    move(store, ["k0002"], RowState.WAITING, RowState.PLACED)
    assert write_back(store, database_of_mysql) == 3
    assert rows(database)[:2] == before
    assert [row["state"] for row in rows(database)] == ["placed"] * 3


class Flaky:
    """A database that is away half of the time: before anything was written, or after it was, with the answer lost."""

    def __init__(self, database, seed):
        self.database = database
        self.chance = random.Random(seed)
        self.away = 0

    @contextlib.contextmanager
    def transaction(self):
        fate = self.chance.random()
        if fate < 0.3:
            self.away += 1
            raise ServiceError("away", is_transient=True)
        with self.database.transaction() as execute:
            yield execute
        if fate < 0.6:
            self.away += 1
            raise ServiceError("the answer was lost", is_transient=True)


def test_of_a_thousand_rows_none_is_missing_and_none_is_there_twice_though_the_database_is_away(
    store, database
):
    add(store, 1000)
    flaky = Flaky(database, seed=4)
    keys = [f"k{row:04}" for row in range(1000)]
    states = ((RowState.WAITING, RowState.PLACED), (RowState.PLACED, RowState.DONE))
    for was, state in states:
        for begin in range(0, 1000, 100):
            move(store, keys[begin : begin + 100], was, state)
            with contextlib.suppress(ServiceError):
                write_back(store, flaky)
    while store.rows.unwritten():
        with contextlib.suppress(ServiceError):
            write_back(store, flaky)
    written = rows(database)
    assert flaky.away > 5
    assert [row["task"] for row in written] == keys
    assert {row["state"] for row in written} == {"done"}


def test_two_grids_share_a_table_and_a_long_reason_is_cut(store, database, tmp_path):
    other = Store(tmp_path / "other.db")
    other.make("others", rules=Rules(), now=0.0)
    for each in (store, other):
        add(each, 1)
        move(each, ["k0000"], RowState.WAITING, RowState.FAILED, reason="x" * 5000)
        write_back(each, database)
    other.database.close()
    assert [(row["grid"], len(row["reason"])) for row in rows(database)] == [
        ("drives", 1024),
        ("others", 1024),
    ]

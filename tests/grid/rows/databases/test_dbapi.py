"""Open connections of PEP 249: sqlite3's own, and drivers that mark parameters otherwise."""

import sqlite3
import sys
import types

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.rows.databases.dbapi import Dbapi
from raysm.grid.rows.statement import Statement


def write_and_fail(execute):
    execute("DELETE FROM t", {})
    execute("DELETE FROM none", {})


@pytest.fixture
def connection():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (3,)])
    connection.commit()
    yield connection
    connection.close()


def test_rows_come_by_the_drivers_own_marks(connection):
    database = Dbapi.of(connection)
    assert database.style == sqlite3.paramstyle
    assert database.name == "the connection of sqlite3"
    assert database.select(Statement(text="SELECT a FROM t WHERE a > :a"), {"a": 1}, 9) == (("a",), [(2,), (3,)])


class Driver:
    """A connection of a package whose module of the top says how parameters are marked, as psycopg's does."""

    __module__ = "other_driver.connections"

    def __init__(self):
        self.calls = []
        self.description = (("a",),)

    def cursor(self):
        return self

    def execute(self, *call):
        self.calls.append(call)

    def fetchmany(self, size):
        return []

    def close(self):
        self.calls.append("close")

    commit = rollback = close


@pytest.fixture
def driver():
    # A module that stands in for an installed driver, and is gone afterwards.
    sys.modules["other_driver"] = types.ModuleType("other_driver")
    sys.modules["other_driver"].paramstyle = "pyformat"
    yield Driver()
    del sys.modules["other_driver"]


def test_a_driver_of_another_style_gets_its_marks_and_nothing_without_parameters(driver):
    database = Dbapi.of(driver)
    database.select(Statement(text="SELECT :a"), {"a": 1}, 9)
    database.select(Statement(text="SELECT '%'"), {}, 9)
    assert driver.calls == [("SELECT %(a)s", {"a": 1}), "close", ("SELECT '%'",), "close"]


def test_a_driver_that_does_not_say_its_style_is_refused_with_the_remedy(driver):
    del sys.modules["other_driver"].paramstyle
    with pytest.raises(InvalidRequest, match="paramstyle.*give an address instead"):
        Dbapi.of(driver).select(Statement(text="SELECT 1"), {}, 9)


def test_the_drivers_own_error_is_a_refusal(connection):
    with pytest.raises(InvalidRequest, match="the connection of sqlite3 refuses the query: no such table: none"):
        Dbapi.of(connection).select(Statement(text="SELECT * FROM none"), {}, 9)


def test_what_is_written_is_committed_and_a_failure_undone(connection):
    database = Dbapi.of(connection)
    with database.transaction() as execute:
        assert execute("UPDATE t SET a = :a WHERE a < :b AND a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(ServiceError, match="no such table"), database.transaction() as execute:
        write_and_fail(execute)
    assert sorted(connection.execute("SELECT a FROM t")) == [(3,), (9,), (9,)]


@pytest.mark.parametrize("on", ["a.db", sqlite3.Connection, None, 3], ids=str)
def test_what_is_no_open_connection_is_left_to_others(on):
    assert Dbapi.of(on) is None

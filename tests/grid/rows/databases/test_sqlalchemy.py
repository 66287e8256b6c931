"""Databases by SQLAlchemy: the same statements by an address of its own."""

import sqlite3

import pytest

from raysm.errors import InvalidRequest, MissingDependency, ServiceError
from raysm.grid.rows.databases.sqlalchemy import SqlAlchemy
from raysm.grid.rows.statement import Statement

pytest.importorskip("sqlalchemy", reason="the extra sql")


def write_and_fail(execute):
    execute("DELETE FROM t", {})
    execute("DELETE FROM none", {})


@pytest.fixture
def database(tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, ":no"), (2, "x"), (3, ":no")])
    connection.close()
    # The name of a driver makes it an address that raysm itself does not know.
    return SqlAlchemy.of(f"sqlite+pysqlite:///{tmp_path / 'a.db'}")


def test_values_are_bound_and_colons_in_texts_are_none(database):
    statement = Statement(text="SELECT a, b FROM t WHERE b = ':no' AND a > :a;")
    assert database.select(statement, {"a": 1}, 9) == (("a", "b"), [(3, ":no")])
    assert database.select(Statement(text="SELECT a FROM t"), {}, 2)[1] == [(1,), (2,)]


def test_nothing_is_kept_of_a_statement_that_writes_after_all(database):
    with pytest.raises(InvalidRequest):
        database.select(Statement(text="WITH x AS (SELECT 9) INSERT INTO t (a) SELECT * FROM x"), {}, 9)
    assert len(database.select(Statement(text="SELECT a FROM t"), {}, 9)[1]) == 3


def test_what_is_written_is_kept_where_the_block_ends_well_and_else_undone(database):
    with database.transaction() as execute:
        assert execute("UPDATE t SET a = :a WHERE a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(ServiceError, match="no such table"), database.transaction() as execute:
        write_and_fail(execute)
    assert len(database.select(Statement(text="SELECT a FROM t"), {}, 9)[1]) == 3


def test_no_password_is_shown():
    database = SqlAlchemy.of("postgresql://me:hunter2@db:5432/x")
    assert "hunter2" not in repr(database)
    assert database.name == "postgresql://me:***@db:5432/x"


def test_a_driver_that_is_missing_is_named_with_how_to_get_it():
    with pytest.raises(MissingDependency, match="pip install oracledb"):
        SqlAlchemy.of("oracle+oracledb://me:hunter2@db/x").select(Statement(text="SELECT 1"), {}, 9)


@pytest.mark.parametrize("address", ["nonsense://me:hunter2@db/x", "sqlite+pysqlite://me:hunter2@db:port/x"])
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(InvalidRequest) as caught:
        SqlAlchemy.of(address).select(Statement(text="SELECT 1"), {}, 9)
    assert "hunter2" not in str(caught.value)


def test_a_database_that_cannot_be_opened_is_away(tmp_path):
    with pytest.raises(ServiceError, match="unable to open") as caught:
        SqlAlchemy.of(f"sqlite+pysqlite:///{tmp_path}/none/a.db").select(Statement(text="SELECT 1"), {}, 9)
    assert caught.value.is_transient


@pytest.mark.parametrize("on", ["a.db", None, 3])
def test_what_is_no_address_is_left_to_others(on):
    assert SqlAlchemy.of(on) is None

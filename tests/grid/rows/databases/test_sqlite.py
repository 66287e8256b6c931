"""SQLite by the standard library."""

import sqlite3

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.rows.databases.sqlite import Sqlite
from raysm.grid.rows.statement import Statement


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a b.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,), (3,)])
    connection.close()
    return path


def select(database, text, most=9, **params):
    return database.select(Statement(text=text), params, most)


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"], ids=["a path", "an address"])
def test_a_path_and_an_address_are_the_same_database(path, form):
    database = Sqlite.of(form.format(path))
    assert select(database, "SELECT a FROM t WHERE a > :a", a=1) == (("a",), [(2,), (3,)])


def test_no_more_rows_come_than_were_asked_for(path):
    assert select(Sqlite.of(path), "SELECT a FROM t", most=2)[1] == [(1,), (2,)]


def test_a_statement_that_writes_after_all_is_refused_by_the_file(path):
    with pytest.raises(InvalidRequest, match="refuses the query: attempt to write a readonly database"):
        select(Sqlite.of(path), "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x")


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.db refuses the query: unable to open"):
        select(Sqlite.of(tmp_path / "none.db"), "SELECT 1")
    assert not (tmp_path / "none.db").exists()


def test_what_is_written_is_kept_where_the_block_ends_well_and_else_undone(path):
    database = Sqlite.of(path)
    with database.transaction() as execute:
        assert execute("UPDATE t SET a = :a WHERE a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(KeyError), database.transaction() as execute:
        {execute("DELETE FROM t", {}): "rows"}["none"]
    assert select(database, "SELECT a FROM t")[1] == [(9,), (9,), (3,)]


def test_a_statement_that_is_refused_while_writing_is_an_absence_that_may_pass(path):
    with pytest.raises(ServiceError, match="cannot be used: no such table"), Sqlite.of(path).transaction() as execute:
        execute("DELETE FROM none", {})


@pytest.mark.parametrize("on", ["a.csv", "postgresql://x/y.db", 3, None])
def test_what_is_no_file_of_sqlite_is_left_to_others(on):
    assert Sqlite.of(on) is None

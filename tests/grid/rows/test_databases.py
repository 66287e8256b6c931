"""Databases: SQLite, DuckDB, SQLAlchemy and open connections; what is bound, undone, refused, and never shown."""

import importlib.util
import os
import sqlite3
import sys
import types
from urllib.parse import parse_qs, urlsplit

import pytest

from raysm.errors import InvalidRequest, MissingDependency, ServiceError
from raysm.grid.rows.databases import Connection, DuckDb, SqlAlchemy, Sqlite, database_of, kept_name, variable_of
from raysm.grid.rows.query import Statement


def has(module):
    return importlib.util.find_spec(module) is not None


needs_duckdb = pytest.mark.skipif(not has("duckdb"), reason="the extra duckdb")
needs_sqlalchemy = pytest.mark.skipif(not has("sqlalchemy"), reason="the extra sql")

SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:campaigns-a1b2c3"


@pytest.mark.parametrize(
    ("on", "kind"),
    [("a.db", Sqlite), ("sqlite:///a", Sqlite), ("duckdb://", DuckDb), ("postgresql://db/x", SqlAlchemy)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_database_is_told_by_its_address(on, kind):
    assert type(database_of(on)) is kind


def test_an_open_connection_is_a_database():
    connection = sqlite3.connect(":memory:")
    assert type(database_of(connection)) is Connection
    connection.close()


@pytest.fixture
def variable():
    os.environ["RAYSM_TEST_DATABASE"] = "sqlite:///by-variable.db"
    yield "env:RAYSM_TEST_DATABASE"
    del os.environ["RAYSM_TEST_DATABASE"]


def test_an_address_may_stand_in_a_variable(variable):
    assert database_of(variable).name == "sqlite:///by-variable.db"
    with pytest.raises(InvalidRequest, match="there is no variable NONE_OF_MINE; export"):
        database_of("env:NONE_OF_MINE")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("postgresql://me:x@db/y", "postgresql://me:x@db/y"),
        (
            '{"engine": "postgres", "username": "me", "password": "a/b@c", "host": "db", "port": 5432, "dbname": "y"}',
            "postgresql://me:a%2Fb%40c@db:5432/y",
        ),
        ('{"engine": "mysql", "username": "me", "password": "x", "host": "db"}', "mysql://me:x@db/"),
    ],
    ids=["an address", "RDS of PostgreSQL", "RDS of MySQL"],
)
def test_an_address_may_be_a_secret_as_rds_keeps_it(text, address):
    asked = []
    database = database_of(SECRET, secrets=lambda arn: asked.append(arn) or text)
    assert database.address == address
    assert asked == [SECRET]


def test_a_secret_without_what_an_address_takes_is_refused_without_its_content():
    with pytest.raises(InvalidRequest, match="has no 'username'") as caught:
        database_of(SECRET, secrets=lambda arn: '{"engine": "mysql", "password": "hunter2"}')
    assert "hunter2" not in str(caught.value)


def test_what_is_no_database_is_refused_and_a_secret_is_not_shown():
    with pytest.raises(InvalidRequest, match=r"'drives\.csv' is no database; give an open connection"):
        database_of("drives.csv")
    with pytest.raises(InvalidRequest) as caught:
        database_of(SECRET, secrets=lambda arn: "hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("on", "kept"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("env:CAMPAIGNS", "env:CAMPAIGNS"),
        (SECRET, SECRET),
        ("postgresql://me:x@db/y", None),
        ("postgresql://db/y", "postgresql://db/y"),
        ("postgresql:///y?host=/run/db&user=me&password=x", None),
        ("duckdb:///md:campaigns?motherduck_token=x", None),
        ("postgresql://db/y?sslkey=/me/key.pem", "postgresql://db/y?sslkey=/me/key.pem"),
        (object(), None),
    ],
    ids=[
        "a file", "a variable", "a secret", "a password", "no password", "a password behind it", "a token",
        "a file of a key", "a connection",
    ],
)  # fmt: skip
def test_a_grid_keeps_by_what_it_finds_the_database_again_but_no_password(on, kept):
    assert kept_name(on) == kept


@pytest.mark.parametrize(
    ("on", "name"),
    [
        ("postgresql:///y?user=me&password=hunter2", "postgresql:///y?password=***&user=me"),
        ("duckdb:///md:y?motherduck_token=hunter2", "duckdb:///md:y?motherduck_token=***"),
    ],
)
def test_what_stands_behind_an_address_and_opens_the_database_is_shown_nowhere(on, name):
    database = database_of(on)
    assert parse_qs(urlsplit(database.name).query) == parse_qs(urlsplit(name).query)
    assert "hunter2" not in repr(database) + str(database.unreachable(OSError("away")))


def test_the_variable_that_names_a_database_is_known_by_its_name():
    assert variable_of("env:CAMPAIGNS_URL") == "CAMPAIGNS_URL"
    assert variable_of("sqlite:///campaigns.db") is None


def test_an_error_is_told_by_its_first_line_and_an_absence_passes():
    database = database_of("a.db")
    refused = database.refused(sqlite3.OperationalError("no such table: t\nLINE 1: SELECT"))
    assert isinstance(refused, InvalidRequest)
    assert str(refused) == "sqlite:///a.db refuses the query: no such table: t"
    away = database.unreachable(OSError())
    assert isinstance(away, ServiceError)
    assert away.is_transient
    assert str(away) == "sqlite:///a.db cannot be used: OSError"


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        ("sqlite:///campaigns.db", True),
        ("duckdb://", True),
        ("postgresql://me@localhost/campaigns", True),
        ("postgresql:///campaigns", True),
        ("postgresql://me@db.example.com/campaigns", False),
    ],
)
def test_what_names_no_other_host_is_this_machines(address, is_here):
    assert database_of(address).is_here is is_here


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
    database = database_of(form.format(path))
    assert select(database, "SELECT a FROM t WHERE a > :a", a=1) == (("a",), [(2,), (3,)])


def test_no_more_rows_come_than_were_asked_for(path):
    assert select(database_of(path), "SELECT a FROM t", most=2)[1] == [(1,), (2,)]


def test_a_statement_that_writes_after_all_is_refused_by_the_file(path):
    with pytest.raises(InvalidRequest, match="refuses the query: attempt to write a readonly database"):
        select(database_of(path), "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x")


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.db refuses the query: unable to open"):
        select(database_of(tmp_path / "none.db"), "SELECT 1")
    assert not (tmp_path / "none.db").exists()


def test_what_is_written_is_kept_where_the_block_ends_well_and_else_undone(path):
    database = database_of(path)
    with database.transaction() as execute:
        assert execute("UPDATE t SET a = :a WHERE a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(KeyError), database.transaction() as execute:
        {execute("DELETE FROM t", {}): "rows"}["none"]
    assert select(database, "SELECT a FROM t")[1] == [(9,), (9,), (3,)]


def test_a_statement_that_is_refused_while_writing_is_an_absence_that_may_pass(path):
    with pytest.raises(ServiceError, match="cannot be used: no such table"), database_of(path).transaction() as execute:
        execute("DELETE FROM none", {})


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
    database = database_of(connection)
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
    database = database_of(driver)
    database.select(Statement(text="SELECT :a"), {"a": 1}, 9)
    database.select(Statement(text="SELECT '%'"), {}, 9)
    assert driver.calls == [("SELECT %(a)s", {"a": 1}), "close", ("SELECT '%'",), "close"]


def test_a_driver_that_does_not_say_its_style_is_refused_with_the_remedy(driver):
    del sys.modules["other_driver"].paramstyle
    with pytest.raises(InvalidRequest, match="paramstyle.*give an address instead"):
        database_of(driver).select(Statement(text="SELECT 1"), {}, 9)


def test_the_drivers_own_error_is_a_refusal(connection):
    with pytest.raises(InvalidRequest, match="the connection of sqlite3 refuses the query: no such table: none"):
        database_of(connection).select(Statement(text="SELECT * FROM none"), {}, 9)


def test_what_is_written_is_committed_and_a_failure_undone(connection):
    database = database_of(connection)
    with database.transaction() as execute:
        assert execute("UPDATE t SET a = :a WHERE a < :b AND a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(ServiceError, match="no such table"), database.transaction() as execute:
        write_and_fail(execute)
    assert sorted(connection.execute("SELECT a FROM t")) == [(3,), (9,), (9,)]


@needs_duckdb
def test_a_statement_reads_files_with_bound_values(tmp_path):
    (tmp_path / "drives.csv").write_text("campaign,lr\na,0.1\nb,0.2\n")
    statement = Statement(text=f"SELECT campaign AS key, lr FROM '{tmp_path}/*.csv' WHERE lr > :least OR lr = :least")
    assert database_of("duckdb://").select(statement, {"least": 0.2}, 9) == (("key", "lr"), [("b", 0.2)])


@needs_duckdb
def test_a_database_of_its_own_keeps_what_is_written_and_undoes_what_fails(tmp_path):
    database = database_of(f"duckdb:///{tmp_path}/a.duckdb")
    with database.transaction() as execute:
        execute("CREATE TABLE t (a INTEGER)", {})
        assert execute("INSERT INTO t VALUES (:a)", {"a": 1}) == 1
        assert execute("UPDATE t SET a = 2 WHERE a = :a", {"a": 7}) == 0
    with pytest.raises(ServiceError, match="none"), database.transaction() as execute:
        write_and_fail(execute)
    assert database.select(Statement(text="SELECT a FROM t"), {}, 9)[1] == [(1,)]


@needs_duckdb
def test_a_statement_that_it_refuses_says_why():
    with pytest.raises(InvalidRequest, match="duckdb:// refuses the query: .*none"):
        database_of("duckdb://").select(Statement(text="SELECT * FROM none"), {}, 9)


@pytest.fixture
def alchemy(tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, ":no"), (2, "x"), (3, ":no")])
    connection.close()
    # The name of a driver makes it an address that raysm itself does not know.
    return database_of(f"sqlite+pysqlite:///{tmp_path / 'a.db'}")


@needs_sqlalchemy
def test_values_are_bound_and_colons_in_texts_are_none(alchemy):
    statement = Statement(text="SELECT a, b FROM t WHERE b = ':no' AND a > :a;")
    assert alchemy.select(statement, {"a": 1}, 9) == (("a", "b"), [(3, ":no")])
    assert alchemy.select(Statement(text="SELECT a FROM t"), {}, 2)[1] == [(1,), (2,)]


@needs_sqlalchemy
def test_nothing_is_kept_of_a_statement_that_writes_after_all(alchemy):
    with pytest.raises(InvalidRequest):
        alchemy.select(Statement(text="WITH x AS (SELECT 9) INSERT INTO t (a) SELECT * FROM x"), {}, 9)
    assert len(alchemy.select(Statement(text="SELECT a FROM t"), {}, 9)[1]) == 3


@needs_sqlalchemy
def test_sqlalchemy_commits_what_a_block_writes_and_rolls_back_what_fails(alchemy):
    with alchemy.transaction() as execute:
        assert execute("UPDATE t SET a = :a WHERE a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(ServiceError, match="no such table"), alchemy.transaction() as execute:
        write_and_fail(execute)
    assert len(alchemy.select(Statement(text="SELECT a FROM t"), {}, 9)[1]) == 3


@needs_sqlalchemy
def test_no_password_is_shown():
    database = database_of("postgresql://me:hunter2@db:5432/x")
    assert "hunter2" not in repr(database)
    assert database.name == "postgresql://me:***@db:5432/x"


@needs_sqlalchemy
def test_a_driver_that_is_missing_is_named_with_how_to_get_it():
    with pytest.raises(MissingDependency, match="pip install oracledb"):
        database_of("oracle+oracledb://me:hunter2@db/x").select(Statement(text="SELECT 1"), {}, 9)


@pytest.mark.parametrize("address", ["nonsense://me:hunter2@db/x", "sqlite+pysqlite://me:hunter2@db:port/x"])
@needs_sqlalchemy
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(InvalidRequest) as caught:
        database_of(address).select(Statement(text="SELECT 1"), {}, 9)
    assert "hunter2" not in str(caught.value)


@needs_sqlalchemy
def test_a_database_that_cannot_be_opened_is_away(tmp_path):
    with pytest.raises(ServiceError, match="unable to open") as caught:
        database_of(f"sqlite+pysqlite:///{tmp_path}/none/a.db").select(Statement(text="SELECT 1"), {}, 9)
    assert caught.value.is_transient

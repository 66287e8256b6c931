"""Databases: SQLite, DuckDB, SQLAlchemy and open connections; what is bound, undone, refused, and never shown."""

import importlib.util
import os
import re
import sqlite3
from urllib.parse import parse_qs, urlsplit

import pytest

from raysm.errors import InvalidRequest, MissingDependency, ServiceError
from raysm.features.grid.sources.columns import parse_rows
from raysm.features.grid.sources.databases import Query, bound, check_query, database_of, kept_name
from raysm.features.grid.sources.source import source_from_description, source_of

SEED = "SELECT campaign AS key, region, uri AS input_data, lr FROM drives WHERE day >= :since ORDER BY campaign"


@pytest.fixture
def campaigns(tmp_path):
    path = tmp_path / "campaigns.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE drives (campaign TEXT, region TEXT, uri TEXT, lr REAL, day TEXT)"
        )
        connection.executemany(
            "INSERT INTO drives VALUES (?, ?, ?, ?, ?)",
            [
                ("san-francisco", "us-west-1", "s3://us/sf", 0.1, "2026-10-02"),
                ("stuttgart", "eu-central-1", "s3://eu/st", 0.2, "2026-10-01"),
                ("old", "eu-central-1", "s3://eu/old", 0.3, "2026-09-30"),
            ],
        )
    connection.close()
    return path


def test_the_seeds_query_is_a_row_for_each_campaign(campaigns):
    rows = parse_rows(
        source_of(Query(SEED, on=campaigns, params={"since": "2026-10-01"})).read(100)
    )
    assert [(row.key, row.region, row.inputs, row.parameters) for row in rows] == [
        ("san-francisco", "us-west-1", {"data": "s3://us/sf"}, {"lr": 0.1}),
        ("stuttgart", "eu-central-1", {"data": "s3://eu/st"}, {"lr": 0.2}),
    ]


def test_a_value_that_is_sql_itself_stays_a_value(campaigns):
    query = Query(
        "SELECT campaign AS key FROM drives WHERE campaign = :c",
        on=campaigns,
        params={"c": "x' OR '1'='1"},
    )
    with pytest.raises(InvalidRequest, match="no rows"):
        source_of(query).read(100)


def test_what_a_grid_remembers_runs_the_query_again_and_sees_what_came_since(campaigns):
    query = Query("SELECT campaign AS key FROM drives", on=str(campaigns))
    remembered = source_of(query).description
    with sqlite3.connect(campaigns) as connection:
        connection.execute("INSERT INTO drives (campaign) VALUES ('new')")
    connection.close()
    assert len(source_from_description(remembered).read(9).rows) == 4


def test_no_password_is_shown_or_remembered():
    query = Query("SELECT 1", on="postgresql://me:hunter2@db/x")
    assert "hunter2" not in repr(query)
    assert "hunter2" not in repr(source_of(query))
    assert source_of(query).description["on"] is None


SINCE = "SELECT a FROM t WHERE day >= :since AND (b = :b OR c >= :since)"
VALUES = {"since": "2026-10-01", "b": 3}


@pytest.mark.parametrize(
    ("style", "text", "params"),
    [
        ("named", SINCE, VALUES),
        (
            "qmark",
            "SELECT a FROM t WHERE day >= ? AND (b = ? OR c >= ?)",
            ("2026-10-01", 3, "2026-10-01"),
        ),
        (
            "numeric",
            "SELECT a FROM t WHERE day >= :1 AND (b = :2 OR c >= :3)",
            ("2026-10-01", 3, "2026-10-01"),
        ),
        (
            "format",
            "SELECT a FROM t WHERE day >= %s AND (b = %s OR c >= %s)",
            ("2026-10-01", 3, "2026-10-01"),
        ),
        (
            "pyformat",
            "SELECT a FROM t WHERE day >= %(since)s AND (b = %(b)s OR c >= %(since)s)",
            VALUES,
        ),
    ],
)
def test_a_driver_gets_its_own_marks_and_the_values_beside_the_text(style, text, params):
    assert bound(SINCE, style, VALUES) == (text, params)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ':no' FROM t",
        'SELECT ":no" FROM t',
        "SELECT `:no` FROM t",
        "SELECT a -- :no\nFROM t",
        "SELECT a /* :no ; */ FROM t",
        "SELECT a::text FROM t",
        "SELECT $$ :no ; $$, $x$ it's :no $x$ FROM t",
        "SELECT 'it''s :no' FROM t",
    ],
)
def test_what_stands_in_texts_names_and_comments_is_no_parameter(text):
    check_query(text, {})
    assert bound(text, "qmark", {}) == (text, ())


def test_percent_signs_are_doubled_only_for_a_driver_that_formats():
    text = "SELECT a FROM t WHERE b LIKE 'x%' AND c = :c"
    assert bound(text, "format", {"c": 1})[0] == "SELECT a FROM t WHERE b LIKE 'x%%' AND c = %s"
    assert bound(text, "qmark", {"c": 1})[0] == "SELECT a FROM t WHERE b LIKE 'x%' AND c = ?"
    # psycopg formats only where parameters are given:
    # https://www.psycopg.org/psycopg3/docs/basic/params.html
    assert bound("SELECT 'x%'", "format", {})[0] == "SELECT 'x%'"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("SELECT a FROM t WHERE day >= '{since}'", "{since}"),
        ("SELECT a FROM t WHERE day >= {}", "{}"),
        ("SELECT {x!r} FROM t", ":x,"),
        ("SELECT {x:>10} FROM t", ":x,"),
    ],
)
def test_a_value_in_braces_is_refused_with_the_way_to_give_one(text, mark):
    with pytest.raises(InvalidRequest, match=re.escape(mark)):
        check_query(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t",
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
        "-- SELECT\nUPDATE t SET a = 1",
        "",
        "PRAGMA x",
    ],
)
def test_what_does_not_read_is_refused(text):
    with pytest.raises(InvalidRequest, match="only read"):
        check_query(text, {})


def test_one_statement_may_end_with_a_semicolon_and_a_second_one_is_refused():
    assert bound("SELECT 1 ; -- the end\n", "qmark", {}) == ("SELECT 1  -- the end\n", ())
    check_query("(SELECT 1) UNION SELECT 2;", {})
    with pytest.raises(InvalidRequest, match="several statements"):
        check_query("SELECT 1; DROP TABLE t", {})


def test_values_are_those_that_the_statement_takes():
    check_query(SINCE, VALUES)
    with pytest.raises(InvalidRequest, match="--param b="):
        check_query(SINCE, {"since": 1})
    with pytest.raises(InvalidRequest, match="no :c"):
        check_query(SINCE, VALUES | {"c": 1})


def has(module):
    return importlib.util.find_spec(module) is not None


needs_duckdb = pytest.mark.skipif(not has("duckdb"), reason="the extra duckdb")
needs_sqlalchemy = pytest.mark.skipif(not has("sqlalchemy"), reason="the extra sql")

SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:campaigns-a1b2c3"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("postgresql://me:x@db/y", "postgresql://me:x@db/y"),
        (
            '{"engine": "postgres", "username": "me", "password": "a/b@c", "host": "db", "port": 5432, "dbname": "y"}',
            "postgresql://me:a%2Fb%40c@db:5432/y",
        ),
        (
            '{"engine": "mysql", "username": "me", "password": "x", "host": "db"}',
            "mysql://me:x@db/",
        ),
    ],
    ids=["an address", "RDS of PostgreSQL", "RDS of MySQL"],
)
def test_an_address_may_be_a_secret_as_rds_keeps_it(text, address):
    asked = []
    database = database_of(SECRET, secrets=lambda arn: asked.append(arn) or text)
    assert database.opened.args == (address,)
    assert asked == [SECRET]


def test_a_secret_without_what_an_address_takes_is_refused_without_its_content():
    with pytest.raises(InvalidRequest, match="'username'") as caught:
        database_of(SECRET, secrets=lambda arn: '{"engine": "mysql", "password": "hunter2"}')
    assert "hunter2" not in str(caught.value)


def test_what_is_no_database_is_refused_and_a_secret_is_not_shown():
    with pytest.raises(InvalidRequest, match=r"'drives\.csv'"):
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
    assert "hunter2" not in repr(database) + str(database._unreachable(OSError("away")))


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
    return database.select(text, params, most)


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.db"):
        select(database_of(tmp_path / "none.db"), "SELECT 1")
    assert not (tmp_path / "none.db").exists()


def write_and_fail(execute):
    execute("DELETE FROM t", {})
    execute("DELETE FROM none", {})


def of_a_connection(folder):
    return database_of(sqlite3.connect(":memory:"))


def of_duckdb(folder):
    return database_of(f"duckdb:///{folder}/a.duckdb")


def of_sqlalchemy(folder):
    # The name of a driver makes it an address that raysm itself does not know.
    return database_of(f"sqlite+pysqlite:///{folder}/a.db")


def of_a_file(folder):
    (folder / "a.db").touch()
    return database_of(folder / "a.db")


@pytest.mark.parametrize(
    "made",
    [
        of_a_file,
        of_a_connection,
        pytest.param(of_duckdb, marks=needs_duckdb),
        pytest.param(of_sqlalchemy, marks=needs_sqlalchemy),
    ],
)
def test_what_is_written_is_kept_where_the_block_ends_well_and_else_undone(made, tmp_path):
    database = made(tmp_path)
    with database.transaction() as execute:
        execute("CREATE TABLE t (a INTEGER)", {})
        for value in (1, 2, 3):
            assert execute("INSERT INTO t VALUES (:a)", {"a": value}) == 1
        assert execute("UPDATE t SET a = :a WHERE a < :b AND a < :b", {"a": 9, "b": 3}) == 2
    with pytest.raises(ServiceError, match="none"), database.transaction() as execute:
        write_and_fail(execute)
    with pytest.raises(KeyError), database.transaction() as execute:
        {execute("DELETE FROM t", {}): "rows"}["no number"]
    assert sorted(select(database, "SELECT a FROM t")[1]) == [(3,), (9,), (9,)]


@needs_duckdb
def test_a_statement_reads_files_with_bound_values(tmp_path):
    (tmp_path / "drives.csv").write_text("campaign,lr\na,0.1\nb,0.2\n")
    statement = (
        f"SELECT campaign AS key, lr FROM '{tmp_path}/*.csv' WHERE lr > :least OR lr = :least"
    )
    assert database_of("duckdb://").select(statement, {"least": 0.2}, 9) == (
        ("key", "lr"),
        [("b", 0.2)],
    )


@pytest.fixture
def alchemy(tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, ":no"), (2, "x"), (3, ":no")])
    connection.close()
    return of_sqlalchemy(tmp_path)


@needs_sqlalchemy
def test_values_are_bound_and_colons_in_texts_are_none(alchemy):
    statement = "SELECT a, b FROM t WHERE b = ':no' AND a > :a;"
    assert alchemy.select(statement, {"a": 1}, 9) == (("a", "b"), [(3, ":no")])
    assert alchemy.select("SELECT a FROM t", {}, 2)[1] == [(1,), (2,)]


@needs_sqlalchemy
def test_nothing_is_kept_of_a_statement_that_writes_after_all(alchemy):
    with pytest.raises(InvalidRequest):
        alchemy.select("WITH x AS (SELECT 9) INSERT INTO t (a) SELECT * FROM x", {}, 9)
    assert len(alchemy.select("SELECT a FROM t", {}, 9)[1]) == 3


@needs_sqlalchemy
def test_a_driver_that_is_missing_is_named_with_how_to_get_it():
    with pytest.raises(MissingDependency, match="pip install oracledb"):
        database_of("oracle+oracledb://me:hunter2@db/x").select("SELECT 1", {}, 9)


@pytest.mark.parametrize(
    "address", ["nonsense://me:hunter2@db/x", "sqlite+pysqlite://me:hunter2@db:port/x"]
)
@needs_sqlalchemy
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(InvalidRequest) as caught:
        database_of(address).select("SELECT 1", {}, 9)
    assert "hunter2" not in str(caught.value)


@needs_sqlalchemy
def test_a_database_that_cannot_be_opened_is_away(tmp_path):
    with pytest.raises(ServiceError, match="unable to open") as caught:
        database_of(f"sqlite+pysqlite:///{tmp_path}/none/a.db").select("SELECT 1", {}, 9)
    assert caught.value.is_transient


def test_a_statement_that_writes_after_all_is_refused_by_the_file(path):
    with pytest.raises(InvalidRequest, match="readonly"):
        select(database_of(path), "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x")


@pytest.fixture
def variable():
    os.environ["RAYSM_TEST_DATABASE"] = "sqlite:///by-variable.db"
    yield "env:RAYSM_TEST_DATABASE"
    del os.environ["RAYSM_TEST_DATABASE"]


def test_an_address_may_stand_in_a_variable(variable):
    assert database_of(variable).name == "sqlite:///by-variable.db"
    with pytest.raises(InvalidRequest, match="NONE_OF_MINE"):
        database_of("env:NONE_OF_MINE")

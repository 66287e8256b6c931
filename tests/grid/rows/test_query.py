"""Queries: rows of SQL as tasks, once; and the same query again later."""

import sqlite3
import subprocess
import sys
import textwrap

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.columns import tasks_of
from raysm.grid.rows.query import Query, Statement
from raysm.grid.rows.source import source_again, source_of

SEED = "SELECT campaign AS key, region, uri AS input_data, lr FROM drives WHERE day >= :since ORDER BY campaign"


@pytest.fixture
def campaigns(tmp_path):
    path = tmp_path / "campaigns.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE drives (campaign TEXT, region TEXT, uri TEXT, lr REAL, day TEXT)")
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


def test_the_seeds_query_is_a_task_for_each_campaign(campaigns):
    tasks = tasks_of(source_of(Query(SEED, on=campaigns, params={"since": "2026-10-01"})).read(100))
    assert [(task.key, task.region, task.inputs, task.parameters) for task in tasks] == [
        ("san-francisco", "us-west-1", {"data": "s3://us/sf"}, {"lr": 0.1}),
        ("stuttgart", "eu-central-1", {"data": "s3://eu/st"}, {"lr": 0.2}),
    ]


def test_a_value_that_is_sql_itself_stays_a_value(campaigns):
    query = Query("SELECT campaign AS key FROM drives WHERE campaign = :c", on=campaigns, params={"c": "x' OR '1'='1"})
    with pytest.raises(InvalidRequest, match="the query has no rows"):
        source_of(query).read(100)


def test_wrong_values_and_texts_are_refused_before_a_database_is_opened():
    with pytest.raises(InvalidRequest, match="takes :since"):
        Query(SEED, on="none.db")
    with pytest.raises(InvalidRequest, match="never put into SQL"):
        Query("SELECT '{x}'", on="none.db")


def test_more_rows_than_may_be_are_refused_without_being_read(campaigns):
    with pytest.raises(InvalidRequest, match=r"the query has more than 1 rows.*max_rows=10"):
        source_of(Query("SELECT campaign FROM drives", on=campaigns)).read(1)


def test_a_column_twice_is_refused_with_the_remedy(campaigns):
    with pytest.raises(InvalidRequest, match="two columns are named 'lr'; rename one"):
        source_of(Query("SELECT lr, lr FROM drives", on=campaigns)).read(9)


def test_what_a_grid_remembers_runs_the_query_again_and_sees_what_came_since(campaigns):
    query = Query("SELECT campaign AS key FROM drives", on=str(campaigns))
    remembered = source_of(query).description
    with sqlite3.connect(campaigns) as connection:
        connection.execute("INSERT INTO drives (campaign) VALUES ('new')")
    connection.close()
    assert len(source_again(remembered).read(9).rows) == 4


def test_a_database_that_is_not_remembered_has_to_be_given_again(campaigns):
    with sqlite3.connect(campaigns) as connection:
        remembered = source_of(Query("SELECT campaign AS key FROM drives", on=connection)).description
        with pytest.raises(InvalidRequest, match="name it by env:NAME"):
            source_again(remembered)
        assert len(source_again(remembered, on=connection).read(9).rows) == 3
    connection.close()


def test_no_password_is_shown_or_remembered():
    query = Query("SELECT 1", on="postgresql://me:hunter2@db/x")
    assert "hunter2" not in repr(query)
    assert "hunter2" not in repr(source_of(query))
    assert source_of(query).description["on"] is None


HUNDRED_THOUSAND = """
    def _most_megabytes():
        # Not getrusage's: that begins with what the process had been before it became this program.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    import sys, time
    from pathlib import Path
    from raysm.grid.rows.columns import tasks_of
    from raysm.grid.rows.query import Query
    from raysm.grid.rows.source import source_of
    begin = time.process_time()
    text = "SELECT 'c' || n AS key, region, uri AS input_data, lr FROM drives WHERE n >= :n"
    query = Query(text, on=sys.argv[1], params={"n": 0})
    tasks = tasks_of(source_of(query).read(100_000))
    print(len(tasks), time.process_time() - begin, _most_megabytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the most memory of a process is read from /proc")
def test_a_hundred_thousand_rows_take_less_than_five_seconds_and_200_mb(tmp_path):
    path = tmp_path / "many.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE drives (n INTEGER, region TEXT, uri TEXT, lr REAL)")
        rows = ((n, "eu-central-1", f"s3://bucket-eu-central-1/campaigns/{n}/images", n / 7) for n in range(100_000))
        connection.executemany("INSERT INTO drives VALUES (?, ?, ?, ?)", rows)
    connection.close()
    # Apart, since the most memory of a process never becomes less.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HUNDRED_THOUSAND), str(path)], capture_output=True, text=True, check=True
    )
    number, seconds, megabytes = map(float, done.stdout.split())
    assert number == 100_000
    assert seconds < 5
    assert megabytes < 200


SINCE = "SELECT a FROM t WHERE day >= :since AND (b = :b OR c >= :since)"
VALUES = {"since": "2026-10-01", "b": 3}


@pytest.mark.parametrize(
    ("style", "text", "params"),
    [
        ("named", SINCE, VALUES),
        ("qmark", "SELECT a FROM t WHERE day >= ? AND (b = ? OR c >= ?)", ("2026-10-01", 3, "2026-10-01")),
        ("numeric", "SELECT a FROM t WHERE day >= :1 AND (b = :2 OR c >= :3)", ("2026-10-01", 3, "2026-10-01")),
        ("format", "SELECT a FROM t WHERE day >= %s AND (b = %s OR c >= %s)", ("2026-10-01", 3, "2026-10-01")),
        ("pyformat", "SELECT a FROM t WHERE day >= %(since)s AND (b = %(b)s OR c >= %(since)s)", VALUES),
    ],
)
def test_a_driver_gets_its_own_marks_and_the_values_beside_the_text(style, text, params):
    assert Statement(text=SINCE).bound(style, VALUES) == (text, params)


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
    statement = Statement(text=text)
    assert statement.names == ()
    assert statement.bound("qmark", {}) == (text, ())


def test_percent_signs_are_doubled_only_for_a_driver_that_formats():
    statement = Statement(text="SELECT a FROM t WHERE b LIKE 'x%' AND c = :c")
    assert statement.bound("format", {"c": 1})[0] == "SELECT a FROM t WHERE b LIKE 'x%%' AND c = %s"
    assert statement.bound("qmark", {"c": 1})[0] == "SELECT a FROM t WHERE b LIKE 'x%' AND c = ?"
    # psycopg formats only where parameters are given: https://www.psycopg.org/psycopg3/docs/basic/params.html
    assert Statement(text="SELECT 'x%'").bound("format", {})[0] == "SELECT 'x%'"


def test_sqlalchemy_which_looks_into_texts_is_told_of_colons_that_are_none_of_its_own():
    assert Statement(text="SELECT ':no', a::int, :yes;").for_sqlalchemy() == r"SELECT '\:no', a\:\:int, :yes"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("SELECT a FROM t WHERE day >= '{since}'", r"\{since\}"),
        ("SELECT a FROM t WHERE day >= {}", r"\{\}"),
        ("SELECT {x!r} FROM t", "write :x"),
        ("SELECT {x:>10} FROM t", "write :x"),
    ],
)
def test_a_value_in_braces_is_refused_with_the_way_to_give_one(text, mark):
    with pytest.raises(InvalidRequest, match=rf"never put into SQL.*{mark}|{mark}.*never put into SQL"):
        Statement(text=text)


def test_braces_that_sql_itself_has_are_left_alone():
    for text in ("SELECT '{1,2}'::int[]", """SELECT '{"a": 1}'"""):
        assert Statement(text=text).text == text


@pytest.mark.parametrize(
    "text",
    ["DELETE FROM t", "INSERT INTO t VALUES (1)", "DROP TABLE t", "-- SELECT\nUPDATE t SET a = 1", "", "PRAGMA x"],
)
def test_what_does_not_read_is_refused(text):
    with pytest.raises(InvalidRequest, match=r"the query begins with \w+; it must only read"):
        Statement(text=text)


def test_one_statement_may_end_with_a_semicolon_and_a_second_one_is_refused():
    assert Statement(text="SELECT 1 ; -- the end\n").bound("qmark", {}) == ("SELECT 1  -- the end\n", ())
    assert Statement(text="(SELECT 1) UNION SELECT 2;").names == ()
    with pytest.raises(InvalidRequest, match="several statements"):
        Statement(text="SELECT 1; DROP TABLE t")


def test_values_are_those_that_the_statement_takes():
    statement = Statement(text=SINCE)
    statement.check(VALUES)
    with pytest.raises(InvalidRequest, match=r"takes :b, and no value is given.*--param b=…"):
        statement.check({"since": 1})
    with pytest.raises(InvalidRequest, match=r"takes no :c; it takes :since, :b"):
        statement.check(VALUES | {"c": 1})


def test_a_style_that_there_is_not_is_refused_and_a_statement_of_raysms_own_may_write():
    with pytest.raises(InvalidRequest, match="paramstyle is 'own'"):
        Statement(text="SELECT 1").bound("own", {})
    assert Statement.written("UPDATE t SET a = :a").bound("qmark", {"a": 1}) == ("UPDATE t SET a = ?", (1,))

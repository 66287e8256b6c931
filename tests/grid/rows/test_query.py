"""Queries: rows of SQL as tasks, once; and the same query again later."""

import sqlite3
import subprocess
import sys
import textwrap

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.columns import tasks_of
from raysm.grid.rows.query import Query, QuerySource
from raysm.grid.rows.source import source_of

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
    assert len(QuerySource.again(remembered).read(9).rows) == 4


def test_a_database_that_is_not_remembered_has_to_be_given_again(campaigns):
    with sqlite3.connect(campaigns) as connection:
        remembered = source_of(Query("SELECT campaign AS key FROM drives", on=connection)).description
        with pytest.raises(InvalidRequest, match="name it by env:NAME"):
            QuerySource.again(remembered)
        assert len(QuerySource.again(remembered, on=connection).read(9).rows) == 3
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

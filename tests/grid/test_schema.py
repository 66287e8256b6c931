"""The tables are strict: what has another type than its column is refused."""

import sqlite3

import pytest

from raysm.grid.database import Database
from raysm.grid.records import SCHEMA
from raysm.grid.rules import Rules
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench


def test_a_value_of_another_type_is_refused(tmp_path):
    database = Database(tmp_path / "g.db")
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value"):
        database.connection.execute("INSERT INTO outbox VALUES ('a', 'soon')")
    database.close()


def test_every_table_is_strict():
    assert SCHEMA.count("CREATE TABLE") == SCHEMA.count("STRICT")


def counted(connection):
    return connection.execute(
        "SELECT region, instance_type, spot, coalesce(usd_per_hour, 0), count(*), sum(count), "
        "sum(count * max_runtime_s) FROM attempt WHERE state <> 'ended' GROUP BY 1, 2, 3, 4"
    ).fetchall()


def test_what_is_in_use_is_what_the_open_attempts_sum_up_to_at_every_moment(tmp_path):
    regions = {"r-1": Behaviour(fails={"share:0.3": "AlgorithmError: no"}), "r-2": Behaviour(usd_per_hour=None)}
    bench = Bench(tmp_path, rows=30, regions=regions, rules=Rules(brake=0, parallel=7))
    connection, seen = bench.store.database.connection, 0
    while bench.step():
        kept = connection.execute("SELECT * FROM in_use WHERE attempts > 0").fetchall()
        assert sorted(map(tuple, kept)) == sorted(map(tuple, counted(connection)))
        seen = max(seen, len(kept))
    assert seen == 2
    assert connection.execute("SELECT sum(attempts), sum(instances), sum(instance_s) FROM in_use").fetchone()[:] == (
        0, 0, 0,
    )  # fmt: skip

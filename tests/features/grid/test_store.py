"""The store keeps rows and what became of them, whatever happens between two calls; fields are checked."""

import contextlib
import dataclasses
import math
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.protocol.home import Clock
from raysm.core.request.job import NAME_PATTERN
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.capacity import read_market
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.store import schema
from raysm.features.grid.store.database import (
    LEASE_S,
    GridDatabase,
    LeaseLost,
    StoreFailed,
    naming_file,
)
from raysm.features.grid.store.store import GridRecord, Store, path_of
from tests.support.budgets import USER
from tests.support.grid_world import Behaviour
from tests.support.grids import Bench

RECORDED = Path(__file__).parents[2] / "support" / "recorded"

ROW = Row(
    key="a",
    position=3,
    region="eu-west-1",
    instance_types=("ml.g5.xlarge",),
    spot=True,
    expected_s=60.0,
)


@pytest.fixture
def record():
    return GridRecord(
        name="g",
        run="abcdef",
        state="open",
        why="",
        rules=Rules(),
        template="{}",
        source="{}",
        created_s=1.0,
        goes_on=True,
        clock=Clock(speed=1.0, begun_s=0.0),
    )


@pytest.mark.parametrize("name", ["drives/2026 october and more words", "größe", "-", "?" * 60])
def test_the_names_of_jobs_are_names_for_the_service(record, name):
    job = dataclasses.replace(record, name=name).job_name(ROW, 12)
    assert NAME_PATTERN.fullmatch(job)
    assert job.endswith(f"-abcdef-{ROW.key_hash}-a12")


LARGE = ("attempt", "task", "event")
"""Tables that grow with the rows of a grid."""


def scans(connection, statements):
    """Return the statements whose plan reads a whole large table, and what the plan says."""
    found = {}
    for statement in statements:
        if not re.match(r"\s*(SELECT|UPDATE|DELETE|WITH|INSERT)", statement):
            continue
        # How SQLite prints an infinite number, which it does not read again.
        statement = re.sub(r"\bInf\b", "9e999", statement)
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
            # "SCAN attempt USING INDEX by_region" reads a partial index, of open attempts for
            # example.
            if re.fullmatch(rf"SCAN ({'|'.join(LARGE)})", row["detail"]):
                found[statement] = row["detail"]
    return found


@pytest.fixture
def bench(tmp_path):
    regions = {
        "us-east-1": Behaviour(capacity=2, run_s=300, fails={"row-1": USER}, lost=0.2),
        "eu-west-1": Behaviour(quota=3, run_s=300, interrupted_s=100.0),
        "us-west-2": Behaviour(refusal=ServiceError("denied", code="AccessDeniedException")),
    }
    bench = Bench(
        tmp_path,
        regions=regions,
        rules=Rules(brake=0, give_up_s=3600),
        rows=[
            Row(key=f"row-{number}", position=number, max_runtime_s=7200) for number in range(12)
        ],
    )
    yield bench
    bench.store.close()


def test_no_query_of_a_step_reads_a_whole_table(bench):
    statements = set()
    connection = bench.store.database.connection
    connection.set_trace_callback(statements.add)
    bench.run()
    store = bench.store
    now = bench.clock.now
    # Called by steps of grids that have a brake, a rate, or are stopped.
    (
        store.attempts.running_jobs(),
        store.attempts.first_ends(3),
        store.attempts.pending_since("us-east-1", now),
        store.rows.unwritten(),
    )
    list(store.rows.all(RowState.WAITING))
    read_market(bench.store, bench.limiter, list(bench.regions), bench.clock.now)
    connection.set_trace_callback(None)
    assert any("attempt" in statement for statement in statements)
    assert scans(connection, statements) == {}


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_a_name_that_is_no_files_name_is_refused(name):
    with pytest.raises(InvalidRequest, match=f"got {re.escape(repr(name))}"):
        path_of(name)


HOUR = Attempt(
    row_key="a", number=1, name="g-a-a1", region="us-east-1", instance_type="ml.m5.large", count=2
)


def attempt(**changes):
    values = {
        name: getattr(HOUR, name)
        for name in ("row_key", "number", "name", "region", "instance_type", "count")
    }
    return Attempt(**values | changes)


def test_of_a_choice_it_has_the_type_and_the_price_that_the_service_took():
    chosen = attempt(usd_per_hour=9.0, choice='{"ml.m5.large": 1.0, "ml.p5.48xlarge": 9.0}')
    assert chosen.types == ("ml.m5.large", "ml.p5.48xlarge")
    assert chosen.settled("ml.m5.large") == {
        "instance_type": "ml.m5.large",
        "usd_per_hour": 1.0,
        "choice": "",
    }
    assert chosen.settled(None) == {}
    assert (HOUR.types, HOUR.settled("ml.m5.large")) == (("ml.m5.large",), {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parallel", 0),
        ("retries", -1),
        ("brake", -1),
        ("patience_s", 0),
        ("max_cost", 0),
        ("max_cost", math.nan),
        ("give_up_s", math.nan),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name, value):
    with pytest.raises(InvalidRequest, match=rf"Rules.*{name}.*{value}"):
        Rules(**{name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"x": 2}},
        {"image": "other"},
        {"inputs": {"train": "s3://b/c"}},
        {"manifests": {"train": "s3://b/c"}},
    ],
)
def test_what_decides_the_result_changes_the_digest(change):
    assert Row(key="a").digest != Row(key="a", **change).digest


@pytest.fixture
def database(tmp_path):
    database = GridDatabase(tmp_path / "g.db")
    yield database
    database.close()


def test_a_damaged_file_is_named_with_what_to_do(tmp_path, database):
    database.connection.executemany(
        "INSERT INTO outbox VALUES (?, 1)", [(f"row-{number}",) for number in range(2000)]
    )
    database.close()
    path = tmp_path / "g.db"
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreFailed, match=r"g\.db is damaged"), naming_file(path):
        GridDatabase(path).connection.execute(
            "SELECT count(*) FROM outbox WHERE seq = 1"
        ).fetchall()


def test_an_error_of_the_disk_is_not_called_damage(tmp_path):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    with pytest.raises(StoreFailed, match="the disk that holds .*does not mean"):
        with naming_file(tmp_path / "g.db"):
            raise error


def test_a_file_that_cannot_be_opened_is_named_with_what_to_do(tmp_path):
    (tmp_path / "g.db").mkdir()
    with pytest.raises(StoreFailed, match=r"g\.db .*RAYSM_HOME"):
        GridDatabase(tmp_path / "g.db")


def test_a_full_disk_is_named_with_what_to_do(database):
    database.take_lease("me", 0)
    pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFailed, match=r"g\.db is full"), naming_file(database.path):
        with database.transaction("rows"):
            database.connection.executemany(
                "INSERT INTO outbox VALUES (?, 1)",
                [(f"row-{number}" * 100,) for number in range(500)],
            )
    # What was begun is undone, and the lease is let go of.
    assert database.connection.execute("SELECT count(*) FROM outbox").fetchone()[0] == 0
    database.release_lease()


def test_tables_of_another_version_are_left_alone(tmp_path, database):
    database.connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(InvalidRequest, match=f"version {schema.VERSION + 1}, .* {schema.VERSION};"):
        GridDatabase(tmp_path / "g.db")


def write_recorded(path, version):
    """Write the file of a grid as raysm wrote it when its tables were of this version."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / f"grid_{version}.sql").read_text())


def columns(database):
    return {
        (table, *column[1:])
        for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for column in database.execute("SELECT * FROM pragma_table_info(?)", (table,))
    }


@pytest.mark.parametrize("version", [*schema.MIGRATIONS, schema.VERSION])
def test_a_file_of_each_known_version_opens_with_its_rows(tmp_path, database, version):
    write_recorded(tmp_path / "old.db", version)
    store = Store(tmp_path / "old.db")
    assert columns(store.database) == columns(database)
    assert store.database.value("PRAGMA user_version") == schema.VERSION
    assert store.grid().rules == Rules(max_cost=50.0)
    assert [(each.row.key, each.row.parameters, each.state) for each in store.rows.all()] == [
        ("stuttgart", {"lr": 0.1}, RowState.PLACED),
        ("ulm", {"lr": 0.2}, RowState.WAITING),
    ]
    (attempt,) = store.attempts.open()
    assert (attempt.row_key, attempt.state) == ("stuttgart", AttemptState.RUNNING)
    ended = {"state": AttemptState.ENDED, "waited_s": 288.0}
    store.attempts.move(attempt, 2_000.0, **ended)
    assert store.attempts.open_count() == 0
    store.close()


def test_a_file_passes_through_each_version_after_its_own(tmp_path, monkeypatch):
    oldest = min(schema.MIGRATIONS)
    monkeypatch.setitem(schema.MIGRATIONS, oldest - 1, "ALTER TABLE attempt ADD COLUMN extra TEXT")
    write_recorded(tmp_path / "old.db", oldest)
    with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.execute(f"PRAGMA user_version = {oldest - 1}")
    database = GridDatabase(tmp_path / "old.db")
    assert {"extra", "waited_s"} <= {name for table, name, *_ in columns(database)}
    assert sorted(schema.MIGRATIONS) == [*range(oldest - 1, schema.VERSION)]
    database.close()


def test_the_lease_is_one_controllers_until_it_is_over(tmp_path, database):
    database.take_lease("first", 0)
    other = GridDatabase(tmp_path / "g.db")
    with pytest.raises(LeaseLost, match="first"):
        other.take_lease("second", 29)
    other.take_lease("second", 31)
    with pytest.raises(LeaseLost, match="second"), database.transaction("late"):
        pass
    other.release_lease()
    # The first does not go on even now: what it remembers is out of date.
    with pytest.raises(LeaseLost):
        database.take_lease("first", 40)
    other.close()


def test_two_controllers_do_not_take_a_lease_at_the_same_moment(tmp_path, database):
    other = GridDatabase(tmp_path / "g.db")
    other.connection.execute("PRAGMA busy_timeout = 0")
    waits = []

    def take_meanwhile(statement):
        # After the first has seen that the lease is free, and before it has written its own.
        if statement.startswith("INSERT OR REPLACE INTO lease") and not waits:
            waits.append(False)
            try:
                other.take_lease("second", 0)
            except sqlite3.OperationalError as error:
                waits[0] = error.sqlite_errorcode == sqlite3.SQLITE_BUSY

    database.connection.set_trace_callback(take_meanwhile)
    database.take_lease("first", 0)
    database.connection.set_trace_callback(None)
    assert waits == [True]
    other.close()


def test_a_grid_has_a_controller_until_its_lease_is_over(database):
    assert not database.has_controller(0)
    database.take_lease("me", 0)
    assert database.has_controller(LEASE_S - 1)
    assert not database.has_controller(LEASE_S)


def test_taking_a_lease_says_whether_another_controller_had_it(tmp_path, database):
    assert not database.take_lease("first", 0)
    assert not database.take_lease("first", 10)
    other = GridDatabase(tmp_path / "g.db")
    assert other.take_lease("second", 10 + LEASE_S)
    other.close()


def test_a_lease_survives_a_clock_that_jumps(database):
    database.take_lease("me", 0)
    for now in (7_200, 0, 10):
        database.take_lease("me", now)
    assert database.fence == 1


def test_the_lease_of_a_process_that_has_ended_is_not_waited_for(tmp_path, database):
    code = "from raysm.features.grid.store.database import this_process; print(this_process())"
    gone = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    database.take_lease(gone, 0)
    other = GridDatabase(tmp_path / "g.db")
    # Otherwise raysm grid stop would leave the jobs to a controller that does not exist.
    assert not other.has_controller(1)
    other.take_lease("second", 1)
    other.close()

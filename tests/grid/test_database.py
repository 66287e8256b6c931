"""The file of a grid: its transactions, its one lease, and what it refuses."""

import subprocess
import sys

import pytest

from raysm.errors import InvalidRequest
from raysm.grid import records
from raysm.grid.database import Database, LeaseLost, StoreFailed, naming_file


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path / "g.db")
    yield database
    database.close()


def test_a_damaged_file_is_named_with_what_to_do(tmp_path, database):
    database.connection.executemany("INSERT INTO outbox VALUES (?, 1)", [(f"row-{number}",) for number in range(2000)])
    database.close()
    path = tmp_path / "g.db"
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreFailed, match=r"g\.db is damaged .* move it away"), naming_file(path):
        Database(path).connection.execute("SELECT count(*) FROM outbox WHERE seq = 1").fetchall()


def test_a_file_that_cannot_be_opened_is_named_with_what_to_do(tmp_path):
    (tmp_path / "g.db").mkdir()
    with pytest.raises(StoreFailed, match="cannot be written .* set another RAYSM_HOME"):
        Database(tmp_path / "g.db")


def test_a_full_disk_is_named_with_what_to_do(database):
    database.take_lease("me", 0)
    pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFailed, match="is full; free some space"), naming_file(database.path):
        with database.transaction("rows"):
            database.connection.executemany(
                "INSERT INTO outbox VALUES (?, 1)", [(f"row-{number}" * 100,) for number in range(500)]
            )
    # What was begun is undone, and the lease is let go of.
    assert database.connection.execute("SELECT count(*) FROM outbox").fetchone()[0] == 0
    database.release_lease()


def test_tables_of_another_version_are_left_alone(tmp_path, database):
    database.connection.execute(f"PRAGMA user_version = {records.VERSION + 1}")
    with pytest.raises(InvalidRequest, match=rf"of version {records.VERSION + 1}, this one reads {records.VERSION}"):
        Database(tmp_path / "g.db")


def test_the_lease_is_one_controllers_until_it_is_over(tmp_path, database):
    database.take_lease("first", 0)
    other = Database(tmp_path / "g.db")
    with pytest.raises(LeaseLost, match="run by first"):
        other.take_lease("second", 29)
    other.take_lease("second", 31)
    with pytest.raises(LeaseLost, match="second"), database.transaction("late"):
        pass
    other.close()


def test_a_lease_survives_a_clock_that_jumps(database):
    database.take_lease("me", 0)
    for now in (7_200, 0, 10):
        database.take_lease("me", now)
    assert database.fence == 1


def test_the_lease_of_a_process_that_has_ended_is_not_waited_for(tmp_path, database):
    code = "from raysm.grid.database import StoreFailed, naming_file, this_process; print(this_process())"
    gone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    database.take_lease(gone, 0)
    other = Database(tmp_path / "g.db")
    other.take_lease("second", 1)
    other.close()

"""What is alike of all databases: how a cursor is read, and how its errors are told."""

import sqlite3

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.rows.databases.database import BATCH, read_cursor
from raysm.grid.rows.databases.opening import database_of
from raysm.grid.rows.databases.sqlite import Sqlite


class Cursor:
    """Counts what is taken from it."""

    description = (("n", None), ("m", None))

    def __init__(self):
        self.taken = 0

    def fetchmany(self, size):
        self.taken += size
        return [[number, -number] for number in range(size)]


def test_no_more_is_taken_than_was_asked_for_but_for_the_rest_of_a_batch():
    cursor = Cursor()
    columns, rows = read_cursor(cursor, BATCH + 1)
    assert columns == ("n", "m")
    assert len(rows) == BATCH + 1
    assert rows[1] == (1, -1)
    assert cursor.taken == 2 * BATCH


def test_an_error_is_told_by_its_first_line_and_an_absence_passes():
    database = Sqlite.of("a.db")
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

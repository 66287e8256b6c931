"""The tables are strict: what has another type than its column is refused."""

import sqlite3

import pytest

from raysm.grid.database import Database
from raysm.grid.schema import SCHEMA


def test_a_value_of_another_type_is_refused(tmp_path):
    database = Database(tmp_path / "g.db")
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value"):
        database.connection.execute("INSERT INTO outbox VALUES ('a', 'soon')")
    database.close()


def test_every_table_is_strict():
    assert SCHEMA.count("CREATE TABLE") == SCHEMA.count("STRICT")

"""Which database is meant, and what of it a grid may keep."""

import os
import sqlite3
from urllib.parse import parse_qs, urlsplit

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.databases.dbapi import Dbapi
from raysm.grid.rows.databases.duckdb import DuckDb
from raysm.grid.rows.databases.opening import database_of, kept_name, variable_of
from raysm.grid.rows.databases.sqlalchemy import SqlAlchemy
from raysm.grid.rows.databases.sqlite import Sqlite

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
    assert type(database_of(connection)) is Dbapi
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

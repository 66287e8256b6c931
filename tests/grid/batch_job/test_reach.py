"""What a grid names, and a Batch job does not reach."""

import contextlib
import dataclasses
import os
import sqlite3

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.batch_job.definition import Definition
from raysm.grid.batch_job.sending import check_database, check_inputs
from raysm.grid.rows.query import Query
from raysm.grid.rows.source import source_of
from raysm.grid.rules import Rules
from raysm.request import Input

BARE = Definition(name="own", container={})


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"inputs": {"data": "drives/"}}, [{"key": "a", "lr": 1}], "the input 'data' is 'drives/', a path of this"),
        ({"inputs": {"data": Input("./x")}}, [{"key": "a", "lr": 1}], r"the input 'data' is './x'"),
        ({}, [{"key": "a", "lr": 1, "input_data": "a.csv"}], r"row 1 \(a\): its input 'data' is 'a.csv'"),
    ],
    ids=["of all rows", "as a value", "of a row"],
)
def test_a_path_of_this_machine_is_refused(laptop, options, rows, message):
    with pytest.raises(InvalidRequest, match=message):
        check_inputs(laptop.planned(rows, options=options))


def test_what_lies_in_s3_or_is_anothers_result_is_reached(laptop):
    rows = [{"key": "a", "lr": 1, "input_data": "s3://drives/a"}]
    check_inputs(laptop.planned(rows, options={"inputs": {"more": "job:first/data", "key": "s3://drives/{key}"}}))


@contextlib.contextmanager
def variable(name, value):
    os.environ[name] = value
    try:
        yield f"env:{name}"
    finally:
        os.environ.pop(name)


def written_back(laptop, on):
    source = source_of(Query("SELECT key, lr FROM drives", on=on))
    return dataclasses.replace(laptop.request(), source=source, rules=Rules(write_back=True))


def test_a_database_of_this_machine_is_not_written_back_to(laptop, tmp_path):
    with pytest.raises(InvalidRequest, match=r"campaigns\.db is of this machine, where no Batch job can write back"):
        check_database(written_back(laptop, str(tmp_path / "campaigns.db")), BARE)
    with variable("RAYSM_TEST_URL", "sqlite:///campaigns.db") as name, pytest.raises(InvalidRequest, match="of this"):
        check_database(written_back(laptop, name), BARE)
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(InvalidRequest, match="to an open connection"):
            check_database(written_back(laptop, connection), BARE)
    with pytest.raises(InvalidRequest, match="to an address with a password"):
        check_database(written_back(laptop, "postgresql://user:secret@db.example.com/campaigns"), BARE)


def test_the_variable_that_names_a_database_has_to_be_the_definitions_too(laptop):
    with variable("RAYSM_TEST_URL", "postgresql://user:secret@db.example.com/campaigns") as name:
        request = written_back(laptop, name)
        with pytest.raises(InvalidRequest, match="the variable RAYSM_TEST_URL says, which .* 'own' does not have"):
            check_database(request, BARE)
        secret = {"name": "RAYSM_TEST_URL", "valueFrom": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x"}
        check_database(request, Definition(name="own", container={"secrets": [secret]}))


def test_what_is_not_written_back_needs_no_database(laptop, tmp_path):
    request = dataclasses.replace(written_back(laptop, str(tmp_path / "campaigns.db")), rules=Rules())
    check_database(request, BARE)

"""What columns mean: those that raysm knows, the families, the parameters; and errors with row and column."""

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.grid.rows.columns import COLUMNS, Table, plain, tasks_of
from raysm.grid.task import Task


def table(columns, **more):
    return Table(columns=columns, rows=[(1,) * len(columns)], origin="drives.csv", **more)


@pytest.mark.parametrize(
    ("columns", "message"),
    [(("a", ""), "column 2 has no name"), (("a", "b", "a"), "two columns are named 'a'; rename one")],
)
def test_a_column_without_a_name_or_with_anothers_is_refused(columns, message):
    with pytest.raises(InvalidRequest, match=message):
        table(columns)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "a"),
        (None, None),
        (float("nan"), None),
        (Decimal("0.10"), "0.10"),
        (dt.date(2026, 10, 1), "2026-10-01"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (np.float32(0.5), 0.5),
        (pd.Timestamp("2026-10-01"), "2026-10-01T00:00:00"),
        (pd.NaT, None),
        (pd.NA, None),
        (float("inf"), "inf"),
        (np.datetime64("2026-10-01T02:03:00", "ns"), "2026-10-01T02:03:00.000000000"),
        (np.datetime64("NaT", "ns"), None),
    ],
    ids=str,
)
def test_a_value_becomes_what_json_has(value, expected):
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


def tasks(*rows, **more):
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    values = [tuple(row.get(name) for name in columns) for row in rows]
    return tasks_of(Table(columns=columns, rows=values, origin="drives.csv", **more))


def test_every_column_that_raysm_knows_says_what_it_says_as_text_too():
    texts = {
        "key": "a", "region": "eu-west-1", "instance_type": "ml.p4d.24xlarge, ml.g5.xlarge", "count": "10",
        "image": "acme/train:1", "priority": "-2", "spot": "yes", "max_runtime_s": "3600", "expected_s": "90.5",
        "input_gb": "1.5", "checkpoint": "s3://b/c", "env_LEVEL": "2", "env.MODE": "x", "tag_team": "a", "input.val": "s3://v",
    }  # fmt: skip
    assert set(COLUMNS) <= set(texts)
    (task,) = tasks(texts)
    assert task == Task(
        key="a",
        region="eu-west-1",
        instance_types=("ml.p4d.24xlarge", "ml.g5.xlarge"),
        count=10,
        image="acme/train:1",
        priority=-2,
        spot=True,
        max_runtime_s=3600,
        expected_s=90.5,
        input_bytes=1_500_000_000,
        checkpoint="s3://b/c",
        environment={"LEVEL": "2", "MODE": "x"},
        tags={"team": "a"},
        inputs={"val": "s3://v"},
    )


def test_a_manifest_is_a_channel_too_which_the_row_has_once():
    (task,) = tasks({"key": "a", "manifest_data": "s3://b/m", "input_extra": "s3://b/x"})
    assert task == Task(key="a", manifests={"data": "s3://b/m"}, inputs={"extra": "s3://b/x"})
    with pytest.raises(InvalidRequest, match="input_data and manifest_data both give the channel 'data'"):
        tasks({"key": "a", "manifest_data": "s3://b/m", "input_data": "s3://b/x"})


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("count", "x", "it is not a number"),
        ("count", 0, "a whole number of at least 1"),
        ("priority", "1e30", "it must be at most 9007199254740992"),
        ("region", "useast1", "write it like us-east-1"),
        ("instance_type", "g5.xlarge", "write it like ml.g5.xlarge"),
        ("spot", "perhaps", "it must be true or false"),
        ("expected_s", "-1", "a number above 0"),
        ("key", "a\nb", "printable characters"),
        ("key", "x" * 201, "1 to 200 printable"),
        ("lr", b"\0", "a bytes cannot be a value of a row"),
        ("input_data", [1], "a list cannot be a value of a row"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_with_its_row_and_column(column, value, message):
    with pytest.raises(InvalidRequest, match=rf"^drives\.csv, line 9, column '{column}': .*{message}"):
        tasks({"key": "first"}, {"key": "second", column: value}, lines=[4, 9])


def test_two_rows_of_one_key_are_refused_with_both_places():
    with pytest.raises(InvalidRequest, match=r"row 3: drives.csv, row 1 has the key 'a' too"):
        tasks({"key": "a"}, {"key": "b"}, {"key": "a"})


def test_a_row_without_a_key_where_others_have_one_is_refused():
    with pytest.raises(InvalidRequest, match="row 2: the column 'key' is empty"):
        tasks({"key": "a"}, {"lr": 1})


ROWS = st.lists(
    st.fixed_dictionaries({"lr": st.integers(0, 3), "region": st.just("us-east-1")}), min_size=1, max_size=8
)


@given(rows=ROWS, order=st.randoms())
def test_without_keys_another_order_of_the_rows_is_the_same_grid(rows, order):
    shuffled = list(rows)
    order.shuffle(shuffled)
    one, other = ({task.key: task.parameters for task in tasks(*each)} for each in (rows, shuffled))
    assert one == other
    assert len(one) == len(rows)

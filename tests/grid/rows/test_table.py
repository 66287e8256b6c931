"""What sources come to: checked columns, rows with names, values as JSON has them."""

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.table import Table, plain


def table(columns, **more):
    return Table(columns=columns, rows=[(1,) * len(columns)], origin="drives.csv", **more)


def test_a_row_is_named_by_its_line_where_the_source_has_lines_and_else_by_its_number():
    assert table(("a",), lines=[7]).where(0) == "drives.csv, line 7"
    assert table(("a",)).where(0) == "drives.csv, row 1"


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
        (3, 3),
        (True, True),
        (None, None),
        (0.5, 0.5),
        (float("nan"), None),
        (Decimal("0.10"), "0.10"),
        (dt.date(2026, 10, 1), "2026-10-01"),
        (dt.datetime(2026, 10, 1, 2, 3), "2026-10-01T02:03:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (np.float32(0.5), 0.5),
        (np.int64(4), 4),
        (pd.Timestamp("2026-10-01"), "2026-10-01T00:00:00"),
        (pd.NaT, None),
        (np.float64("nan"), None),
        (pd.NA, None),
        (float("inf"), "inf"),
        (np.float32("-inf"), "-inf"),
        (np.datetime64("2026-10-01T02:03:00", "ns"), "2026-10-01T02:03:00.000000000"),
        (np.datetime64("2026-10-01T02:03:00", "s"), "2026-10-01T02:03:00"),
        (np.datetime64("NaT", "ns"), None),
    ],
    ids=str,
)
def test_a_value_becomes_what_json_has(value, expected):
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}], ids=str)
def test_what_json_has_no_single_value_for_is_refused(value):
    with pytest.raises(ValueError, match=f"a {type(value).__name__} cannot be a value of a row"):
        plain(value)

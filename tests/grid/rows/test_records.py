"""Rows that a program has as mappings."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.records import Records, of_records


def test_columns_are_in_the_order_in_which_they_first_occur():
    table = Records.of([{"lr": 1}, {"depth": 2, "lr": 3}]).read(9)
    assert table.columns == ("lr", "depth")
    assert table.rows == [(1, None), (3, 2)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"lr": 1}, 3], r"row 2: expected a dictionary"),
        ([{1: 2}], "the name of the column 1 is not text"),
        ([], "has no rows"),
    ],
    ids=["a number", "a column that is no text", "none"],
)
def test_what_are_no_rows_is_refused_by_its_place(rows, message):
    with pytest.raises(InvalidRequest, match=message):
        Records.of(rows).read(9)


def test_a_grid_remembers_how_many_there_were():
    assert Records.of(iter([{"a": 1}, {"a": 2}])).description == {"records": 2}


def test_more_records_than_may_be_are_refused():
    with pytest.raises(InvalidRequest, match="more than 1 rows"):
        of_records([{"a": 1}, {"a": 2}], "rows", 1)

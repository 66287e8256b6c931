"""Rows of frames and tables in memory, told by what they can do."""

import pandas as pd
import pyarrow as pa
import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.arrow import ArrowFrame
from raysm.grid.rows.columns import tasks_of


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "Arrow"])
def test_a_frame_and_a_table_are_read_alike(make):
    table = ArrowFrame.of(make({"key": ["a", "b"], "lr": [0.1, 0.2]})).read(9)
    assert table.columns == ("key", "lr")
    assert table.rows == [("a", 0.1), ("b", 0.2)]
    assert table.where(1) == "the data frame, row 2"


class Columns(dict):
    """As Polars' frame: columns by name, their values by ``to_list``."""

    columns = property(list)
    shape = property(lambda self: (2, len(self)))


class Series:
    def __init__(self, *values):
        self.to_list = lambda: list(values)


def test_a_frame_of_another_library_is_read_by_the_same_methods():
    frame = Columns(key=Series("a", "b"), lr=Series(1, 2))
    assert ArrowFrame.of(frame).read(9).rows == [("a", 1), ("b", 2)]


def test_what_a_frame_lacks_is_nothing_in_the_task():
    frame = pd.DataFrame({"key": ["a", "b"], "count": [2, None], "lr": [0.1, None]})
    first, second = tasks_of(ArrowFrame.of(frame).read(9))
    assert (first.count, second.count) == (2, None)
    assert second.parameters == {"lr": None}


def test_a_column_without_a_text_for_a_name_and_too_many_rows_are_refused():
    with pytest.raises(InvalidRequest, match="the name of the column 0 is not text"):
        ArrowFrame.of(pd.DataFrame([[1]])).read(9)
    with pytest.raises(InvalidRequest, match="the data frame has more than 1 rows"):
        ArrowFrame.of(pd.DataFrame({"a": [1, 2]})).read(1)


def test_what_has_no_columns_is_no_frame():
    assert ArrowFrame.of([{"a": 1}]) is None
    assert ArrowFrame.of(pd.DataFrame({"a": [1]})).description == {"records": 1}


def test_a_name_that_two_columns_have_is_refused_in_a_table_of_any_library():
    three = [[1, 1], [2, 2], [3, 3]]
    for frame in (pd.DataFrame(three, columns=["a", "a"]), pa.table([[1, 2, 3], [1, 2, 3]], names=["a", "a"])):
        with pytest.raises(InvalidRequest, match="two columns are named 'a'"):
            ArrowFrame.of(frame).read(9)

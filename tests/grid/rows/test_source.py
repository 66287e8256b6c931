"""Which source something is: told by what it is, and what is none is refused with what there is."""

from pathlib import Path

import pandas as pd
import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.arrow import ArrowFrame
from raysm.grid.rows.csv_file import CsvFile
from raysm.grid.rows.jsonl_file import JsonlFile
from raysm.grid.rows.parquet_file import ParquetFile
from raysm.grid.rows.query import Query, QuerySource
from raysm.grid.rows.records import Records
from raysm.grid.rows.source import check_number, source_of


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ("a/drives.csv", CsvFile),
        (Path("drives.TSV"), CsvFile),
        ("drives.csv.gz", CsvFile),
        ("drives.jsonl", JsonlFile),
        (Path("drives.ndjson"), JsonlFile),
        ("drives.parquet", ParquetFile),
        ([{"lr": 1}], Records),
        (({"lr": lr} for lr in (1, 2)), Records),
        (pd.DataFrame({"lr": [1]}), ArrowFrame),
        (Query("SELECT 1", on="a.db"), QuerySource),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_a_source_is_told_by_what_it_is(rows, kind):
    assert type(source_of(rows)) is kind


def test_a_source_is_its_own():
    source = Records(records=[{"a": 1}])
    assert source_of(source) is source


@pytest.mark.parametrize("rows", [3, "drives.xlsx", {"lr": 1}, b"x", None], ids=str)
def test_what_is_no_source_is_refused_with_what_there_is(rows):
    with pytest.raises(InvalidRequest, match=r"is not a source of rows; give a path of \.csv"):
        source_of(rows)


def test_more_rows_than_may_be_and_none_are_refused():
    check_number("drives.csv", 5, 5)
    with pytest.raises(InvalidRequest, match=r"drives\.csv has more than 5 rows.*max_rows=50"):
        check_number("drives.csv", 6, 5)
    with pytest.raises(InvalidRequest, match=r"drives\.csv has no rows"):
        check_number("drives.csv", 0, 5)

"""Sources of rows and their columns: what is malformed is refused with its place."""

import datetime as dt
import gzip
import re
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from raysm.errors import InvalidRequest
from raysm.features.grid.row import Row
from raysm.features.grid.sources.columns import COLUMNS, Table, parse_rows, plain
from raysm.features.grid.sources.databases import Query
from raysm.features.grid.sources.source import (
    FileSource,
    Frame,
    QuerySource,
    Records,
    source_from_description,
    source_of,
)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ("a/drives.csv", FileSource),
        (Path("drives.TSV"), FileSource),
        ("drives.csv.gz", FileSource),
        (Path("drives.ndjson"), FileSource),
        ("drives.pq", FileSource),
        ([{"lr": 1}], Records),
        (({"lr": lr} for lr in (1, 2)), Records),
        (pd.DataFrame({"lr": [1]}), Frame),
        (Query("SELECT 1", on="a.db"), QuerySource),
        ("s3://b/drives.csv", FileSource),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_source_of_recognizes_what_it_is_given(rows, kind):
    assert type(source_of(rows)) is kind


@pytest.mark.parametrize(
    "rows", [3, "drives.xlsx", "select * from drives", {"lr": 1}, b"x", None], ids=str
)
def test_what_is_no_source_is_refused_with_what_there_is(rows):
    with pytest.raises(InvalidRequest, match=f"rows={re.escape(repr(rows))}"):
        source_of(rows)


@pytest.mark.parametrize("name", ["a.csv", "A.TSV.GZ", "a.jsonl", "a.parquet"])
def test_a_grid_that_continues_in_another_folder_reads_the_same_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    description = source_of(name).description
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert source_from_description(description).path == tmp_path / name


def read_csv(tmp_path, text, name="drives.csv", max_rows=100):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return source_of(path).read(max_rows)


def test_the_first_line_names_the_columns_and_values_are_texts(tmp_path):
    table = read_csv(tmp_path, "key, lr\na,0.1\nb,\n")
    assert table.columns == ("key", "lr")
    assert table.rows == [("a", "0.1"), ("b", None)]


def test_a_row_is_named_by_the_line_on_which_it_begins(tmp_path):
    table = read_csv(tmp_path, 'key,note\na,"two\nlines"\n\nb,x\n')
    assert [table.where(row).rpartition(" ")[2] for row in (0, 1)] == ["2", "5"]


def test_a_gzipped_file_and_one_with_tabs_are_read_alike(tmp_path):
    assert read_csv(tmp_path, gzip.compress(b"key,lr\na,1\n"), "drives.csv.gz").rows == [("a", "1")]
    assert read_csv(tmp_path, "key\tlr\na\t1,5\n", "drives.tsv").rows == [("a", "1,5")]


def test_the_mark_that_spreadsheets_begin_a_file_with_is_no_part_of_a_name(tmp_path):
    assert read_csv(tmp_path, b"\xef\xbb\xbfkey\r\na\r\n").columns == ("key",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key,lr\na,1,2\n", "line 2.*3 values"),
        ('key,lr\na,1\n"b"x,2\n', "as CSV"),
        (b"key\n\xff\n", "UTF-8"),
        ("key,lr\n", "no rows"),
        ("", "no rows"),
        ("key;lr\na;1,5\n", "line 1.*semicolons"),
        ("key\na\nb\nc\n", "more than 2"),
    ],
    ids=[
        "too many values",
        "a torn quote",
        "Latin-1",
        "a header alone",
        "an empty file",
        "semicolons",
        "too many rows",
    ],
)
def test_a_csv_that_cannot_be_read_is_refused_with_the_line(tmp_path, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read_csv(tmp_path, text, max_rows=2)


def test_a_file_without_names_takes_those_that_are_given(tmp_path):
    path = tmp_path / "array.txt"
    path.write_text("us-west-2,s3://a\neu-west-1,s3://b\n")
    source = source_of(path).with_columns(["region", "uri"])
    table = source.read(10)
    assert (table.columns, table.rows) == (
        ("region", "uri"),
        [("us-west-2", "s3://a"), ("eu-west-1", "s3://b")],
    )
    assert table.where(0).endswith("line 1")
    assert source_from_description(source.description) == source


def read_jsonl(tmp_path, text, max_rows=100):
    path = tmp_path / "drives.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return source_of(path).read(max_rows)


def test_every_name_that_occurs_is_a_column_and_lines_are_counted_with_empty_ones(tmp_path):
    table = read_jsonl(tmp_path, '{"key": "a", "lr": 0.1}\n\n{"key": "b", "depth": 2}\n')
    assert table.columns == ("key", "lr", "depth")
    assert table.rows == [("a", 0.1, None), ("b", None, 2)]
    assert table.where(1).endswith("drives.jsonl, line 3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"key": 1}\n{"key": \n', "line 2.*JSON"),
        ("[" * 100_000, "line 1.*JSON"),
        ("[1, 2]\n", r"line 1.*\[1, 2\]"),
        (b"\xff\n", "UTF-8"),
        ("", "no rows"),
        ('{"a":1}\n' * 4, "more than 3"),
    ],
    ids=["torn", "deep", "a list", "Latin-1", "empty", "too many"],
)
def test_json_lines_that_cannot_be_read_are_refused_with_the_line(tmp_path, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read_jsonl(tmp_path, text, max_rows=3)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "drives.parquet"
    parquet.write_table(
        pa.table({"key": ["a", "b"], "count": pa.array([2, None], pa.int64())}), path
    )
    return path


def test_values_keep_their_types(file):
    table = source_of(file).read(9)
    assert table.columns == ("key", "count")
    assert table.rows == [("a", 2), ("b", None)]
    assert table.where(0).endswith("drives.parquet, row 1")


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "Arrow"])
def test_a_frame_and_a_table_are_read_alike(make):
    table = source_of(make({"key": ["a", "b"], "lr": [0.1, 0.2]})).read(9)
    assert table.columns == ("key", "lr")
    assert table.rows == [("a", 0.1), ("b", 0.2)]
    assert table.where(1) == "the data frame, row 2"


def test_a_column_without_a_text_for_a_name_and_too_many_rows_are_refused():
    with pytest.raises(InvalidRequest, match="column 0"):
        source_of(pd.DataFrame([[1]])).read(9)
    with pytest.raises(InvalidRequest, match="more than 1"):
        source_of(pd.DataFrame({"a": [1, 2]})).read(1)


def test_a_name_that_two_columns_have_is_refused_in_a_table_of_any_library():
    three = [[1, 1], [2, 2], [3, 3]]
    for frame in (
        pd.DataFrame(three, columns=["a", "a"]),
        pa.table([[1, 2, 3], [1, 2, 3]], names=["a", "a"]),
    ):
        with pytest.raises(InvalidRequest, match="named 'a'"):
            source_of(frame).read(9)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"lr": 1}, 3], "row 2.*got 3"),
        ([{1: 2}], "column 1"),
        ([], "no rows"),
    ],
    ids=["a number", "a column that is no text", "none"],
)
def test_what_are_no_rows_is_refused_by_its_place(rows, message):
    with pytest.raises(InvalidRequest, match=message):
        source_of(rows).read(9)


def test_a_file_that_is_not_there_or_torn_is_refused_by_its_name(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.csv"):
        source_of(tmp_path / "none.csv").read(9)
    with pytest.raises(InvalidRequest, match=r"torn\.csv\.gz"):
        read_csv(tmp_path, gzip.compress(b"key,lr\na,1\n")[:-9], "torn.csv.gz")


def table(columns, **more):
    return Table(columns=columns, rows=[(1,) * len(columns)], origin="drives.csv", **more)


@pytest.mark.parametrize(
    ("columns", "message"),
    [(("a", ""), "column 2"), (("a", "b", "a"), "named 'a'")],
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


def parsed(*rows, **more):
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    values = [tuple(row.get(name) for name in columns) for row in rows]
    return parse_rows(Table(columns=columns, rows=values, origin="drives.csv", **more))


def test_every_column_that_raysm_knows_says_what_it_says_as_text_too():
    texts = {
        "key": "a", "region": "eu-west-1", "instance_type": "ml.p4d.24xlarge, ml.g5.xlarge", "count": "10",
        "image": "acme/train:1", "priority": "-2", "spot": "yes", "max_runtime_s": "3600", "expected_s": "90.5",
        "input_gb": "1.5", "checkpoint": "s3://b/c", "env_LEVEL": "2", "env.MODE": "x", "tag_team": "a", "input.val": "s3://v",
    }  # fmt: skip
    assert set(COLUMNS) <= set(texts)
    (row,) = parsed(texts)
    assert row == Row(
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
    (row,) = parsed({"key": "a", "manifest_data": "s3://b/m", "input_extra": "s3://b/x"})
    assert row == Row(key="a", manifests={"data": "s3://b/m"}, inputs={"extra": "s3://b/x"})
    with pytest.raises(InvalidRequest, match="input_data.*manifest_data.*'data'"):
        parsed({"key": "a", "manifest_data": "s3://b/m", "input_data": "s3://b/x"})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"key": ""}, "row 2: "),
        ({"key": "b", "count": 0}, r"row 2 \(b\): count"),
        ({"key": "b", "inputs": {"x": "s3://a"}, "manifests": {"x": "s3://b"}}, r"row 2 \(b\): "),
    ],
    ids=["key", "count", "channel"],
)
def test_messages_about_a_row_count_from_1(values, named):
    with pytest.raises(InvalidRequest, match=f"^{named}"):
        Row(position=1, **values)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("count", "x"),
        ("count", 0),
        ("priority", "1e30"),
        ("region", "useast1"),
        ("instance_type", "g5.xlarge"),
        ("spot", "perhaps"),
        ("expected_s", "-1"),
        ("key", "a\nb"),
        ("key", "x" * 201),
        ("lr", b"\0"),
        ("input_data", [1]),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_with_its_row_and_column(column, value):
    shown = re.escape(repr(value)[:20])
    with pytest.raises(InvalidRequest, match=rf"^drives\.csv, line 9, column '{column}': {shown}"):
        parsed({"key": "first"}, {"key": "second", column: value}, lines=[4, 9])


def test_two_rows_of_one_key_are_refused_with_both_places():
    with pytest.raises(InvalidRequest, match="row 3.*row 1.*'a'"):
        parsed({"key": "a"}, {"key": "b"}, {"key": "a"})


def test_a_row_without_a_key_where_others_have_one_is_refused():
    with pytest.raises(InvalidRequest, match="row 2.*'key'"):
        parsed({"key": "a"}, {"lr": 1})


ROWS = st.lists(
    st.fixed_dictionaries({"lr": st.integers(0, 3), "region": st.just("us-east-1")}),
    min_size=1,
    max_size=8,
)


@given(rows=ROWS, order=st.randoms())
def test_without_keys_another_order_of_the_rows_is_the_same_grid(rows, order):
    shuffled = list(rows)
    order.shuffle(shuffled)
    one, other = ({row.key: row.parameters for row in parsed(*each)} for each in (rows, shuffled))
    assert one == other
    assert len(one) == len(rows)

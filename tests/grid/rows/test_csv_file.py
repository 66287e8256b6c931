"""Rows of CSV files: lines as an editor counts them, empty cells as nothing, and what is malformed by its line."""

import gzip

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.csv_file import CsvFile


def read(tmp_path, text, name="drives.csv", max_rows=100):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return CsvFile.of(path).read(max_rows)


def test_the_first_line_names_the_columns_and_values_are_texts(tmp_path):
    table = read(tmp_path, "key, lr\na,0.1\nb,\n")
    assert table.columns == ("key", "lr")
    assert table.rows == [("a", "0.1"), ("b", None)]


def test_a_row_is_named_by_the_line_on_which_it_begins(tmp_path):
    table = read(tmp_path, 'key,note\na,"two\nlines"\n\nb,x\n')
    assert [table.where(row).rpartition(" ")[2] for row in (0, 1)] == ["2", "5"]


def test_a_gzipped_file_and_one_with_tabs_are_read_alike(tmp_path):
    assert read(tmp_path, gzip.compress(b"key,lr\na,1\n"), "drives.csv.gz").rows == [("a", "1")]
    assert read(tmp_path, "key\tlr\na\t1,5\n", "drives.tsv").rows == [("a", "1,5")]


def test_the_mark_that_spreadsheets_begin_a_file_with_is_no_part_of_a_name(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbfkey\r\na\r\n").columns == ("key",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key,lr\na,1,2\n", r"line 2: 3 values for 2 columns"),
        ('key,lr\na,1\n"b"x,2\n', "cannot be read as CSV"),
        (b"key\n\xff\n", "is not UTF-8"),
        ("key,lr\n", "has no rows"),
        ("", "has no rows"),
        ("key\na\nb\nc\n", "has more than 2 rows"),
    ],
    ids=["too many values", "a torn quote", "Latin-1", "a header alone", "an empty file", "too many rows"],
)
def test_what_cannot_be_read_is_said_with_its_place(tmp_path, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read(tmp_path, text, max_rows=2)


def test_a_file_that_is_not_there_or_torn_is_refused_by_its_name(tmp_path):
    with pytest.raises(InvalidRequest, match=r"none\.csv cannot be read: No such file"):
        CsvFile.of(tmp_path / "none.csv").read(9)
    with pytest.raises(InvalidRequest, match=r"torn\.csv\.gz cannot be read"):
        read(tmp_path, gzip.compress(b"key,lr\na,1\n")[:-9], "torn.csv.gz")


def test_a_grid_remembers_the_whole_path(tmp_path):
    assert CsvFile.of(str(tmp_path / "a.csv")).description == {"file": str(tmp_path / "a.csv")}


def test_a_file_without_names_takes_those_that_are_given(tmp_path):
    path = tmp_path / "array.txt"
    path.write_text("us-west-2,s3://a\neu-west-1,s3://b\n")
    source = CsvFile.of(path).with_columns(["region", "uri"])
    table = source.read(10)
    assert (table.columns, table.rows) == (("region", "uri"), [("us-west-2", "s3://a"), ("eu-west-1", "s3://b")])
    assert table.where(0).endswith("line 1")
    assert CsvFile.again(source.description) == source
    assert CsvFile.again({"query": "SELECT 1"}) is None


def test_lines_without_a_value_do_not_take_the_place_of_rows_behind_them(tmp_path):
    text = "lr\n1\n\n\n2\n3\n"
    assert read(tmp_path, text, max_rows=3).rows == [("1",), ("2",), ("3",)]
    with pytest.raises(InvalidRequest, match="more than 2 rows"):
        read(tmp_path, text, max_rows=2)

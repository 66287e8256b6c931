"""Rows of JSON Lines: every name that occurs is a column, and what is malformed is said by its line."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rows.jsonl_file import JsonlFile


def read(tmp_path, text, max_rows=100):
    path = tmp_path / "drives.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return JsonlFile.of(path).read(max_rows)


def test_every_name_that_occurs_is_a_column_and_lines_are_counted_with_empty_ones(tmp_path):
    table = read(tmp_path, '{"key": "a", "lr": 0.1}\n\n{"key": "b", "depth": 2}\n')
    assert table.columns == ("key", "lr", "depth")
    assert table.rows == [("a", 0.1, None), ("b", None, 2)]
    assert table.where(1).endswith("drives.jsonl, line 3")


def test_a_mark_of_byte_order_is_no_part_of_the_first_row(tmp_path):
    assert read(tmp_path, b'\xef\xbb\xbf{"key": "a"}\r\n{"key": "b"}\r\n').rows == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"key": 1}\n{"key": \n', "line 2 is not JSON"),
        ("[1, 2]\n", "line 1: a row is a JSON object"),
        (b"\xff\n", "is not UTF-8"),
        ("", "has no rows"),
        ('{"a":1}\n' * 4, "has more than 3 rows"),
    ],
    ids=["torn", "a list", "Latin-1", "empty", "too many"],
)
def test_what_cannot_be_read_is_said_with_its_place(tmp_path, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read(tmp_path, text, max_rows=3)


def test_a_file_that_is_not_there_is_refused_and_a_grid_remembers_the_path(tmp_path):
    file = JsonlFile.of(tmp_path / "none.jsonl")
    assert file.description == {"file": str(tmp_path / "none.jsonl")}
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        file.read(9)

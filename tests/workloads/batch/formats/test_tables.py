"""Tables as records, in batches of one size."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.batch.formats.tables import Csv, JsonLines, Parquet, array_of


def read(format, folder, files, rows=4, batch_size=3):
    spans = format.cut(folder, files, rows)
    return spans, [batch for span in spans for batch in format.batches(folder, span, batch_size, 1)]


def test_csv_comes_by_its_header_with_rows_that_hold_line_ends(tmp_path):
    (tmp_path / "a.csv").write_text('x,name\n1,"a\nb"\n2,c\n3,d\n4,e\n')
    _, batches = read(Csv(), tmp_path, ["a.csv"])
    assert [len(batch["x"]) for batch in batches] == [3, 1]
    assert batches[0]["x"].tolist() == [1, 2, 3]
    assert batches[0]["name"].tolist() == ["a\nb", "c", "d"]
    assert batches[1]["row"].tolist() == [3]


def test_tabs_and_json_lines_and_empty_files(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n")
    (tmp_path / "b.jsonl").write_text('{"x": 1, "tags": ["a", "b"]}\n{"x": 2, "tags": []}\n')
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty.jsonl").write_text("")
    assert read(Csv(), tmp_path, ["a.tsv", "empty.csv"])[1][0]["y"].tolist() == [2]
    (batch,) = read(JsonLines(), tmp_path, ["b.jsonl", "empty.jsonl"])[1]
    assert batch["tags"].tolist() == [["a", "b"], []]


@pytest.mark.parametrize(
    ("format", "name", "text"), [(Csv(), "A.CSV.GZ", b"x\n1\n"), (JsonLines(), "A.JSONL.GZ", b'{"x": 1}')]
)
def test_a_compressed_table_is_known_in_capitals_too(tmp_path, format, name, text):
    (tmp_path / name).write_bytes(gzip.compress(text))
    (batch,) = read(format, tmp_path, [name])[1]
    assert batch["x"].tolist() == [1]


def test_parquet_is_cut_at_row_groups_and_numbered_through(tmp_path):
    pq.write_table(pa.table({"x": range(10)}), tmp_path / "a.parquet", row_group_size=3)
    spans, batches = read(Parquet(), tmp_path, ["a.parquet"])
    assert [(span.start, span.stop, span.first_row, span.rows) for span in spans] == [(0, 2, 0, 6), (2, 4, 6, 4)]
    assert [len(batch["x"]) for batch in batches] == [3, 3, 3, 1]
    assert [row for batch in batches for row in batch["row"]] == list(range(10))
    assert [x for batch in batches for x in batch["x"]] == list(range(10))


@pytest.mark.parametrize(
    ("format", "name", "content"),
    [
        (Csv(), "a.csv", "x,y\n1,2\n3\n"),
        (JsonLines(), "a.jsonl", '{"x": 1}\n{"x'),
        (Parquet(), "a.parquet", "PAR1 and no more"),
    ],
)
def test_a_torn_file_is_named(tmp_path, format, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=f"{name} cannot be read"):
        read(format, tmp_path, [name])


def test_a_column_with_a_name_of_raysms_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("row,x\n1,2\n")
    with pytest.raises(InvalidInput, match="a column 'row', which is raysm's name"):
        read(Csv(), tmp_path, ["a.csv"])


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2], pa.int32(), np.array([1, 2], dtype=np.int32)),
        ([1.5, None], pa.float64(), np.array([1.5, np.nan])),
        ([[1, 2], [3, 4]], pa.list_(pa.int64()), np.array([[1, 2], [3, 4]])),
        ([[1.0, 2.0]], pa.list_(pa.float32(), 2), np.array([[1, 2]], dtype=np.float32)),
        ([True, False], pa.bool_(), np.array([True, False])),
    ],
)
def test_numbers_and_lists_of_one_length_are_arrays(values, kind, expected):
    found = array_of(pa.chunked_array([pa.array(values, kind)]))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("values", [["a", None], [[1], [2, 3]], [{"a": 1}, None], [[1, None], [2, 3]]])
def test_all_else_is_objects(values):
    found = array_of(pa.chunked_array([pa.array(values)]))
    assert (found.dtype, found.tolist()) == (object, values)

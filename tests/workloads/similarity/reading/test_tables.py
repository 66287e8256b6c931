import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.tables import csv_table, parquet_table, read_csv, read_parquet


@pytest.mark.parametrize(
    ("line", "header_lines", "names"),
    [
        ("a,b", 1, ("a", "b")),
        ("1,x", 1, ("1", "x")),
        ("0,1", 1, ("0", "1")),
        ("0,2", 0, ("column 0", "column 1")),
        ("0", 0, ("column 0",)),
    ],
)
def test_a_first_line_is_a_header_unless_all_of_it_are_numbers_or_it_counts_the_columns(
    line, header_lines, names, tmp_path
):
    (tmp_path / "m.csv").write_text(f"{line}\n5,6\n")
    table = csv_table(tmp_path / "m.csv")
    assert (table.header_lines, table.names) == (header_lines, names)


def test_a_csv_streams_its_numbers_and_keeps_ids_as_text(tmp_path):
    (tmp_path / "m.csv.gz").write_bytes(gzip.compress(b"id,a,b\n007,1,2\n08,3,4\n"))
    (batch,) = read_csv(tmp_path / "m.csv.gz", Selection(ids=("id",)))
    np.testing.assert_array_equal(batch.rows, [[1, 2], [3, 4]])
    assert batch.ids.to_pylist() == ["007", "08"]


def test_a_csv_that_is_wrong_says_in_which_column_and_row_and_in_which_line_of_the_file(tmp_path):
    (tmp_path / "m.csv").write_text("a,b\n1,2\n3,\n")
    with pytest.raises(InvalidInput, match="m.csv: column 'b', row 1, line 3: the field is empty"):
        list(read_csv(tmp_path / "m.csv"))


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("number", ["2", "2,5"])
@pytest.mark.parametrize("id_column", [None, "a"])
def test_a_delimiter_that_is_no_comma_is_named_and_no_id_column_is_proposed(tmp_path, delimiter, number, id_column):
    (tmp_path / "m.csv").write_text(f"a{delimiter}b\n1{delimiter}{number}\n")
    with pytest.raises(InvalidInput) as refused:
        list(read_csv(tmp_path / "m.csv", Selection(() if id_column is None else (id_column,))))
    assert f"one column was found, and its fields hold {delimiter!r}: is that the delimiter?" in str(refused.value)
    assert "id-column" not in str(refused.value)


def test_a_single_column_whose_name_holds_a_semicolon_is_read(tmp_path):
    (tmp_path / "m.csv").write_text("a;b\n1\n2\n")
    (batch,) = read_csv(tmp_path / "m.csv")
    np.testing.assert_array_equal(batch.rows, [[1], [2]])


def test_parquet_has_numeric_columns_or_one_list_of_numbers(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int8()), "b": [0.5, 1.5]}), tmp_path / "flat.parquet")
    pq.write_table(pa.table({"v": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "lists.parquet")
    flat, lists = (parquet_table(tmp_path / name) for name in ("flat.parquet", "lists.parquet"))
    assert (flat.rows, flat.columns, flat.list_column, flat.dtype) == (2, 2, None, np.float64)
    # How long its lists are, only reading tells.
    assert (lists.rows, lists.columns, lists.list_column) == (2, None, "v")
    (batch,) = read_parquet(tmp_path / "lists.parquet")
    np.testing.assert_array_equal(batch.rows, [[1, 2], [3, 4]])


def test_a_list_of_another_length_is_named_with_its_row(tmp_path):
    pq.write_table(pa.table({"v": [[1.0, 2.0], [3.0]]}), tmp_path / "m.parquet")
    with pytest.raises(InvalidInput, match="column 'v', row 1: the list has 1 numbers, those before have 2"):
        list(read_parquet(tmp_path / "m.parquet"))


def test_text_that_may_be_meant_as_names_says_which_option_says_so(tmp_path):
    pq.write_table(pa.table({"sku": ["x"], "a": [1.0]}), tmp_path / "m.parquet")
    with pytest.raises(InvalidInput, match="column 'sku' holds string, not numbers; if it names the rows"):
        parquet_table(tmp_path / "m.parquet")


def test_a_csv_is_read_without_pandas_which_takes_longer_to_import_than_most_tables_to_read(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2.5\n3,4\n")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from raysm.workloads.similarity.reading.tables import read_csv\n"
        "print([batch.rows.tolist() for batch in read_csv(Path(sys.argv[1]))], 'pandas' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "rows.csv")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == "[[[1.0, 2.5], [3.0, 4.0]]] False\n"

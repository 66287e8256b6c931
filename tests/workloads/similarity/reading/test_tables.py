import subprocess
import sys

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.tables import describe_table, read_table


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
    table = describe_table(tmp_path / "m.csv")
    assert (table.header_lines, table.names) == (header_lines, names)


@pytest.mark.parametrize("text", ["a;b\n1;2\n", "a\tb\n1\t2\n"])
@pytest.mark.parametrize("id_column", [None, "a"])
def test_a_delimiter_that_is_no_comma_is_explained(tmp_path, text, id_column):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(InvalidInput, match="one column was found: its delimiter must be ','"):
        list(read_table(tmp_path / "m.csv", Selection(() if id_column is None else (id_column,))))


def test_a_single_column_whose_name_holds_a_semicolon_is_read(tmp_path):
    (tmp_path / "m.csv").write_text("a;b\n1\n2\n")
    (batch,) = read_table(tmp_path / "m.csv")
    np.testing.assert_array_equal(batch.rows, [[1], [2]])


def test_a_csv_is_read_without_pandas_which_takes_longer_to_import_than_most_tables_to_read(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2.5\n3,4\n")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from raysm.workloads.similarity.reading.tables import read_table\n"
        "print([batch.rows.tolist() for batch in read_table(Path(sys.argv[1]))], 'pandas' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "rows.csv")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == "[[[1.0, 2.5], [3.0, 4.0]]] False\n"

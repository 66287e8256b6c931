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

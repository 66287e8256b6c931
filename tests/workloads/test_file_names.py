"""By their names alone it is known which files are the user's, and which comes first."""

import pytest

from raysm.workloads.file_names import is_hidden, natural


def test_numbers_in_names_count_as_numbers_and_equal_ones_by_the_name():
    names = ["part-10", "part-2", "part-02", "part", "b/part-1", "part-2b"]
    assert sorted(names, key=natural) == ["b/part-1", "part", "part-02", "part-2", "part-2b", "part-10"]
    # A digit of another script is a letter: int() would take it for a number.
    assert sorted(["x²", "x10"], key=natural) == ["x10", "x²"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.npy", False),
        ("2/part-1.npy", False),
        ("a_b/c.d", False),
        (".DS_Store", True),
        ("2/_SUCCESS", True),
        ("_temporary/0/part-1.npy", True),
        ("a/.part-1.crc", True),
    ],
)
def test_marks_and_hidden_files_in_any_folder_are_not_the_users(name, expected):
    assert is_hidden(name) is expected

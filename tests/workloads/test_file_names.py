"""By their names alone it is known which files are the user's."""

import pytest

from raysm.workloads.file_names import is_hidden


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

"""Which files of a channel are the matrix, in which order, and what their headers tell."""

import pytest

from raysm.workloads.similarity.reading.files import matrix_files, suffix


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.npy", ".npy"), ("A.CSV.GZ", ".csv.gz"), ("b.tar.gz", None), ("c.parquet", ".parquet"), ("npy", None)],
)
def test_a_file_is_known_by_the_end_of_its_name(tmp_path, name, expected):
    assert suffix(tmp_path / name) == expected


def test_files_of_all_folders_are_taken_but_what_is_hidden_or_a_mark(tmp_path):
    for name in ("2/part-1.npy", "10/part-1.npy", "2/_SUCCESS", ".part-3.crc", "_tmp/part-4.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert [name for name, _ in matrix_files(tmp_path)] == ["2/part-1.npy", "10/part-1.npy"]

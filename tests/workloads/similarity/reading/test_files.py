"""Which files of a channel are the matrix, in which order, and what their headers tell."""

import numpy as np
import pytest

from raysm.workloads.similarity.reading.files import matrix_files, peek, suffix


def save(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


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


def test_files_behind_a_link_to_a_folder_are_taken_in_their_order(tmp_path):
    (tmp_path / "disk").mkdir()
    save(tmp_path / "disk", a=np.ones((2, 3)), b=np.ones((4, 3)))
    (tmp_path / "matrix").mkdir()
    save(tmp_path / "matrix", e=np.ones((1, 3)))
    (tmp_path / "matrix" / "d").symlink_to(tmp_path / "disk")
    assert [name for name, _ in matrix_files(tmp_path / "matrix")] == ["d/a.npy", "d/b.npy", "e.npy"]
    assert peek(tmp_path / "matrix")[:2] == (7, 3)

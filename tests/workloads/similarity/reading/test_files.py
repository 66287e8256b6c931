"""Which files of a channel are the matrix, in which order, and what their headers tell."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.files import check_ids, matrix_files, peek, suffix

KEY = Selection(ids=("key",))


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


def test_one_file_is_a_matrix_by_itself(tmp_path):
    save(tmp_path, m=np.ones((2, 3)))
    assert matrix_files(tmp_path / "m.npy") == [("m.npy", tmp_path / "m.npy")]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no files"),
        ({".hidden": b"x", "_SUCCESS": b""}, "holds no files"),
        ({"a.npy": b"x", "read.me": b"x"}, "read.me cannot be read as a matrix"),
        ({"a.npy": b""}, "a.npy is empty"),
    ],
)
def test_a_folder_that_is_no_matrix_says_why(tmp_path, files, words):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        matrix_files(tmp_path)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="nowhere does not exist"):
        matrix_files(tmp_path / "nowhere")


def test_the_shape_is_that_of_all_files_together(tmp_path):
    save(tmp_path, a=np.ones((2, 3)), b=np.ones((5, 3)))
    assert peek(tmp_path)[:2] == (7, 3)


def test_rows_that_only_reading_would_count_are_not_told(tmp_path):
    save(tmp_path, a=np.ones((2, 3)))
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("x,y,z\n1,2,3\n")
    assert peek(tmp_path)[:2] == (None, 3)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.ones((2, 3)), "b": np.ones((2, 4))}, "b.npy has 4 columns, a.npy has 3"),
        ({"a": np.ones((0, 3))}, "nothing to compute"),
        ({"a": np.ones((3, 0))}, "nothing to compute"),
    ],
)
def test_files_that_make_no_matrix_are_refused_from_their_headers(tmp_path, arrays, words):
    save(tmp_path, **arrays)
    with pytest.raises(InvalidInput, match=words):
        peek(tmp_path)


def test_ids_are_asked_for_of_files_that_have_columns_with_names(tmp_path):
    save(tmp_path, a=np.ones((2, 3)))
    with pytest.raises(InvalidInput, match="columns of a.npy have no names, so there is no column 'key'"):
        peek(tmp_path, KEY)


def test_ids_of_two_types_are_refused_with_both_files(tmp_path):
    for name, ids in (("a", pa.array(["x"])), ("b", pa.array([1]))):
        pq.write_table(pa.table({"key": ids, "v": pa.array([1.0])}), tmp_path / f"{name}.parquet")
    with pytest.raises(InvalidInput, match=r"\('key'\) of b.parquet are .*, those of a.parquet are "):
        check_ids(matrix_files(tmp_path), KEY)
    assert peek(tmp_path / "b.parquet", KEY)[:2] == (1, 1)

"""Neighbors and scores as whoever asked for them reads them: one file, or parts that are one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.client.results.result import read_as
from raysm.client.results.similarity import SimilarityResult, StackedRows
from raysm.contract.result import ResultFile
from tests.support.client_jobs import manifest


@pytest.fixture
def stacked(tmp_path):
    """Ten rows in three files, and the same as one array."""
    everything = np.arange(70, dtype=np.float32).reshape(10, 7)
    paths = [tmp_path / f"{at}.npy" for at in range(3)]
    for path, part in zip(paths, np.split(everything, [3, 4]), strict=True):
        np.save(path, part)
    return StackedRows.of_files(paths), everything


@pytest.mark.parametrize(
    "key",
    [
        *(3, -1, np.int64(4), (5, 2)),
        *(slice(2, 8, 2), slice(4, 4), (slice(None), 3), (slice(1, 5), slice(0, 4)), (slice(0, 3), -1)),
        [9, 0, 3, 0],
    ],
)
def test_rows_are_those_that_numpy_would_give(stacked, key):
    rows, everything = stacked
    found = rows[key]
    assert np.array_equal(found, everything[key])
    assert np.shape(found) == np.shape(everything[key])


def test_rows_and_columns_that_are_not_there_are_refused(stacked):
    table = stacked[0]
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        table[10]
    with pytest.raises(IndexError, match=r"columns must be a number or a slice, got \[1, 2\]"):
        table[3, [1, 2]]
    with pytest.raises(ValueError, match="only as a copy"):
        np.asarray(table, copy=False)


def result_of(folder, shapes):
    """Return a result of files with these shapes, in their order."""
    files = tuple(
        ResultFile(name=name, shape=shape, bytes=7, sha256="0", how_to_read="", units=("rows", "columns"))
        for name, shape in shapes.items()
    )
    return read_as(folder, manifest(*files, workload={"kind": "similarity"}))


@pytest.fixture
def scores(tmp_path):
    """A full matrix in three parts, beside the names of its rows."""
    (tmp_path / "similarity").mkdir()
    everything = np.arange(70, dtype=np.float32).reshape(10, 7)
    for at, part in enumerate(np.split(everything, [3, 4])):
        np.save(tmp_path / "similarity" / f"part-{at}-of-3.npy", part)
    pq.write_table(pa.table({"id": ["a", "b"]}), tmp_path / "ids.parquet")
    shapes = {f"similarity/part-{at}-of-3.npy": (rows, 7) for at, rows in enumerate([3, 1, 6])}
    return result_of(tmp_path, shapes | {"ids.parquet": (2,)}), everything


def test_parts_of_the_full_matrix_are_one_array_that_is_read_where_it_is_asked(scores):
    result, everything = scores
    found = result.table()
    assert isinstance(found, StackedRows)
    assert np.array_equal(np.asarray(found), everything)


def test_parts_of_neighbors_are_one_table_in_the_order_of_the_rows(tmp_path):
    (tmp_path / "neighbors").mkdir()
    # By the manifest, not by how names sort.
    for name, rows in (("b", [0, 1]), ("a", [2])):
        pq.write_table(pa.table({"row": rows}), tmp_path / "neighbors" / f"{name}.parquet")
    result = result_of(tmp_path, {"neighbors/b.parquet": (2, 4), "neighbors/a.parquet": (1, 4)})
    assert isinstance(result, SimilarityResult)
    assert result.table()["row"].to_pylist() == [0, 1, 2]
    assert result.parts == [tmp_path / "neighbors" / "b.parquet", tmp_path / "neighbors" / "a.parquet"]


def test_one_file_is_the_result_whatever_lies_beside_it(tmp_path):
    np.save(tmp_path / "similarity.npy", np.eye(3))
    result = result_of(tmp_path, {"similarity.npy": (3, 3), "ids.parquet": (3,)})
    assert result.parts == [tmp_path / "similarity.npy"]
    assert isinstance(result.table(), np.memmap)
    assert "similarity.npy: 3 rows x 3 columns" in repr(result)

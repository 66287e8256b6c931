import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.conversion import IDS, ROWS, converted


@pytest.fixture
def table(tmp_path):
    pq.write_table(pa.table({"name": ["x", "y"], "a": [1.0, 2.0], "b": [3.0, 4.0]}), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_a_table_becomes_rows_that_are_mapped_and_ids_beside_them(table, tmp_path):
    folder = converted(table, tmp_path / "scratch", Selection(ids=("name",)))
    np.testing.assert_array_equal(np.load(folder / ROWS), [[1, 3], [2, 4]])
    assert pq.read_table(folder / IDS)["id"].to_pylist() == ["x", "y"]


def test_it_is_made_once_and_anew_where_the_file_changed(table, tmp_path):
    first = converted(table, tmp_path / "scratch", Selection(ids=("name",)))
    made = (first / ROWS).stat().st_ino
    assert converted(table, tmp_path / "scratch", Selection(ids=("name",))) == first
    assert (first / ROWS).stat().st_ino == made
    os.utime(table, ns=(1, 1))
    assert converted(table, tmp_path / "scratch", Selection(ids=("name",))) != first


def test_nothing_is_left_of_what_is_refused(tmp_path):
    (tmp_path / "m.csv").write_text("a,b\n1,2\n3,x\n")
    with pytest.raises(InvalidInput, match="'x' is not a number"):
        converted(tmp_path / "m.csv", tmp_path / "scratch", Selection())
    assert list((tmp_path / "scratch").iterdir()) == []


def test_arrays_that_no_task_could_map_are_written_in_order(tmp_path):
    rows = np.asfortranarray(np.arange(6, dtype=">f4").reshape(3, 2))
    np.save(tmp_path / "m.npy", rows)
    straight = np.load(converted(tmp_path / "m.npy", tmp_path / "scratch", Selection()) / ROWS, mmap_mode="r")
    np.testing.assert_array_equal(straight, rows)
    assert straight.flags.c_contiguous
    assert straight.dtype.isnative

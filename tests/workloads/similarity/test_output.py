"""The files of a result, read back by pyarrow; names of rows are tried in reading/test_ids."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysm.contract.result import IDS, QUERY_IDS
from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.output import write_ids_beside, write_neighbors, write_pairs
from raysm.workloads.similarity.reading.ids import Ids

NUMBERS = np.random.default_rng(0).integers(0, 1000, (50, 4))
SCORES = -np.sort(-np.random.default_rng(1).random((50, 4), dtype=np.float32), axis=1)
NAMED = Ids(
    queries=pa.array([f"r{i}" for i in range(50)], pa.large_string()), neighbors=pa.array(range(1000), pa.int32())
)


def keys(start, stop):
    return encode(SCORES[start:stop], NUMBERS[start:stop])


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_neighbors_are_one_row_for_each_row_with_lists_of_k(tmp_path):
    written = []
    file = write_neighbors(tmp_path / "neighbors.parquet", RowBlock(0, 50), keys, 4, written.append)
    table = pq.read_table(tmp_path / "neighbors.parquet")
    assert table["row"].to_pylist() == list(range(50))
    assert table["neighbors"].to_pylist() == NUMBERS.tolist()
    np.testing.assert_array_equal(np.stack(table["similarities"].to_numpy()), SCORES)
    assert sum(written) == 50
    assert (file.name, file.shape, file.units) == ("neighbors.parquet", (50, 4), ("rows", "neighbors"))
    assert (file.bytes, file.sha256) == (
        (tmp_path / "neighbors.parquet").stat().st_size,
        digest(tmp_path / "neighbors.parquet"),
    )


@pytest.mark.parametrize("cuts", [[0, 300], [0, 1, 2, 150, 300], [0, 0, 100, 300, 300]])
def test_the_bytes_of_pairs_do_not_depend_on_how_they_came(tmp_path, cuts):
    rows = np.sort(np.random.default_rng(2).integers(0, 50, 300))
    columns = (rows, np.arange(300), np.linspace(0, 1, 300, dtype=np.float32))
    chunks = [tuple(column[a:b] for column in columns) for a, b in zip(cuts, cuts[1:], strict=False)]
    file = write_pairs(tmp_path / "pairs.parquet", iter(chunks))
    assert file.sha256 == write_pairs(tmp_path / "whole.parquet", [columns]).sha256
    table = pq.read_table(tmp_path / "pairs.parquet")
    for name, column in zip(("row", "neighbor", "similarity"), columns, strict=True):
        np.testing.assert_array_equal(table[name].to_numpy(), column)


def test_names_of_the_full_matrix_lie_in_files_beside_it(tmp_path):
    assert write_ids_beside(tmp_path, None) == ()
    assert [file.name for file in write_ids_beside(tmp_path, NAMED)] == [IDS, QUERY_IDS]
    assert pq.read_table(tmp_path / QUERY_IDS)["id"].to_pylist() == NAMED.rows.to_pylist()
    same = Ids(neighbors=NAMED.neighbors)
    assert [file.name for file in write_ids_beside(tmp_path, same)] == [IDS]

"""The files of a result, read back by pyarrow; names of rows are tried in reading/test_ids."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.output import write_pairs

NUMBERS = np.random.default_rng(0).integers(0, 1000, (50, 4))
SCORES = -np.sort(-np.random.default_rng(1).random((50, 4), dtype=np.float32), axis=1)


def keys(start, stop):
    return encode(SCORES[start:stop], NUMBERS[start:stop])


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

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from raysm.workloads.similarity.layouts.layout import Layout
from raysm.workloads.similarity.layouts.whole_rows import WholeRows
from raysm.workloads.similarity.reading.source import Place, Source
from tests.support.similarity import saved


class Anywhere(Layout):
    """Any layout: how it cuts pairs is not asked for."""

    suffix = ""

    def cut(self, run, mode, sizing, record):
        """Cut nothing."""
        raise NotImplementedError


@pytest.fixture
def loaded(tmp_path):
    def load(rows, name):
        if isinstance(rows, np.ndarray):
            source = replace(saved(rows, tmp_path / name), channel=name)
        else:
            path = tmp_path / f"{name}.npz"
            scipy.sparse.save_npz(path, rows)
            source = Source(channel=name, place=Place(path, tmp_path / "scratch", "algo-1"))
        return WholeRows(source, source.open())

    return load


def test_of_a_matrix_alone_its_own_rows_look_for_neighbors(loaded):
    layout = Anywhere(loaded(np.eye(3, dtype=np.float32), "matrix"), None)
    assert layout.queries is layout.matrix
    assert len(layout.operands) == 1


@pytest.mark.parametrize(
    ("queries", "matrix", "common"),
    [("float32", "float64", "float64"), ("int8", "uint8", "int16"), ("int64", "uint64", "float64")],
)
def test_both_are_read_as_one_type_that_holds_the_numbers_of_both(loaded, queries, matrix, common):
    rows, other = loaded(np.eye(3, dtype=matrix), "matrix"), loaded(np.eye(2, 3, dtype=queries), "queries")
    layout = Anywhere(rows, other)
    assert (layout.matrix.dtype, layout.queries.dtype) == (common, common)
    assert (layout.matrix.rows, layout.queries.rows) == (3, 2)


def test_elements_are_compared_only_where_both_are_sparse(loaded):
    sparse = scipy.sparse.random(3000, 5000, 0.0005, format="csr", random_state=1)
    rows = loaded(sparse, "matrix")
    assert Anywhere(rows, None).compares_elements()
    assert Anywhere(rows, loaded(sparse[:9], "sparse")).compares_elements()
    assert not Anywhere(rows, loaded(np.ones((2, 5000)), "dense")).compares_elements()

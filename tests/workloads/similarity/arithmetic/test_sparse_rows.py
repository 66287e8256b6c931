"""CSR rows in one form, whichever form they came in, and when they are worth comparing by their elements."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows, sparse_pays


def rows_of(matrix):
    return SparseRows(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1]).canonical()


def random_rows(rows=40, columns=30, share=0.2, seed=0, dtype=np.float32):
    return scipy.sparse.random(rows, columns, share, format="csr", random_state=seed, dtype=dtype)


@st.composite
def csr_arrays(draw):
    """Arrays of CSR as files may hold them: columns in any order, some twice, zeros among the elements."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    total = sum(counts)
    columns = draw(st.lists(st.integers(0, 4), min_size=total, max_size=total))
    data = draw(st.lists(st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0]), min_size=total, max_size=total))
    begins = np.concatenate([[0], np.cumsum(counts)])
    return begins, np.array(columns, dtype=np.int32), np.array(data, dtype=np.float32)


@given(csr_arrays())
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_the_file_columns_rise_each_once_and_no_zero_is_kept(arrays):
    begins, indices, data = arrays
    rows = SparseRows(begins, indices, data, 5).canonical()
    dense = np.zeros((len(begins) - 1, 5), dtype=np.float32)
    np.add.at(dense, (np.repeat(np.arange(len(dense)), np.diff(begins)), indices), data)
    np.testing.assert_array_equal(rows.dense(), dense)
    assert (rows.data != 0).all()
    for start, stop in zip(rows.begins, rows.begins[1:], strict=False):
        assert (np.diff(rows.indices[start:stop]) > 0).all()


@pytest.mark.parametrize(("share", "pays"), [(0.0005, True), (0.2, False)])
def test_elements_are_worth_it_where_rows_share_few_columns(share, pays):
    rows = rows_of(random_rows(rows=2000, columns=5000, share=share))
    assert sparse_pays(rows, 2000) is pays
    # A sample of them, in proportion, says the same.
    assert sparse_pays(rows[:500], 2000) is pays

"""``sparse.c`` as it is called: whether it is there, and what it must agree with before it is believed."""

import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.engines.sparse_library import (
    address,
    described_rows,
    sparse_library,
    sums_as_numpy,
    sums_of_squares,
)


@pytest.fixture(scope="module")
def library():
    compiled, why = sparse_library()
    if compiled is None:
        pytest.skip(why)
    return compiled


class Backwards:
    """A library that sums each row from its last element: it rounds to another number."""

    def sparse_squares(self, rows, squares):
        elements = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_double * (2 * rows.columns)).from_address(rows.data))
        sums = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_double * rows.count).from_address(squares))
        for row in range(rows.count):
            total = 0.0
            for element in elements[row * rows.columns : (row + 1) * rows.columns][::-1]:
                total += element * element
            sums[row] = total


def test_with_nothing_to_compile_it_for_there_is_none_and_the_reason_is_the_last_one():
    assert sparse_library(()) == (None, "")


@pytest.mark.parametrize("columns", [1, 7, 8, 129, 1000, 4097])
def test_it_sums_as_numpy_does_for_any_number_of_columns(library, columns):
    assert sums_as_numpy(library, columns)


def test_one_that_sums_in_another_order_is_found_out():
    assert not sums_as_numpy(Backwards(), 1000)


def test_squares_are_the_exact_sums_of_whole_numbers(library):
    rows = SparseRows.of(np.array([0, 2, 2, 3]), np.array([0, 4, 2]), np.array([3.0, 4.0, 5.0]), 6)
    assert sums_of_squares(library, rows).tolist() == [25.0, 0.0, 25.0]


def test_a_structure_points_into_the_arrays_that_are_handed_back_with_it():
    rows = SparseRows.of(np.array([0, 1]), np.array([2]), np.array([5.0]), 6)
    structure, arrays = described_rows(rows, rows.data, np.array([5.0]), np.array([1.0], dtype=np.float32), 40)
    assert (structure.count, structure.start, structure.columns) == (1, 40, 6)
    assert [structure.begins, structure.indices, structure.unit, structure.data, structure.norms] == [
        address(array) for array in arrays
    ]


def test_an_array_with_gaps_has_no_address():
    with pytest.raises(AssertionError):
        address(np.arange(6)[::2])

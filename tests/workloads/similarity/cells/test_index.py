"""Which rows are members of which cell, and how it travels."""

import numpy as np

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.cells.index import Cells, Index


def index_of(matrix, queries=None):
    return Index(
        centroids=np.eye(3, dtype=np.float32),
        matrix=matrix,
        queries=matrix if queries is None else queries,
        probes=2,
        share=0.25,
        sample=np.array([1, 3]),
        truth=np.array([0.5, 0.25], dtype=np.float32),
    )


def test_members_stand_by_their_cells_and_then_by_their_numbers():
    cells = Cells.of(np.array([2, 0, 2, 0, 0]), 3)
    assert cells.numbers.tolist() == [1, 3, 4, 0, 2]
    assert [cells.members(cell) for cell in range(3)] == [RowBlock(0, 3), RowBlock(3, 3), RowBlock(3, 5)]
    assert cells.sizes.tolist() == [3, 0, 2]


def test_an_index_comes_back_from_its_arrays():
    index = index_of(Cells.of(np.array([2, 0, 1]), 3), Cells.of(np.array([1, 1]), 3))
    back = Index.from_arrays(index.arrays())
    assert (back.probes, back.share) == (2, 0.25)
    for name, array in index.arrays().items():
        np.testing.assert_array_equal(back.arrays()[name], array)


def test_the_lists_of_a_matrix_that_looks_into_itself_are_kept_once():
    back = Index.from_arrays(index_of(Cells.of(np.array([2, 0, 1]), 3)).arrays())
    assert back.queries is back.matrix

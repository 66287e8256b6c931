"""The inverted file: every row in its cell, the truth of a sample, and as many cells as a recall takes."""

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.cells.building import build, comparer_of, without_own
from tests.support.cells import clustered, done_here
from tests.support.reference import neighbors, scores_between
from tests.support.similarity import context_of, saved, two_matrices

ROWS = clustered(1200, 16)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return context_of(saved(ROWS, tmp_path_factory.mktemp("rows")))


@pytest.fixture(scope="module")
def index(context):
    return build(context, 5, 0.9, 2, done_here(context))


def test_every_row_is_a_member_of_its_nearest_cell_and_no_cell_is_empty(context, index):
    compare = comparer_of(context)
    expected = compare.nearest(compare.ready(context.matrix.tile(0, 1200)), index.centroids, 1)[:, 0]
    own = np.empty(1200, dtype=np.int64)
    own[index.matrix.numbers] = np.repeat(np.arange(len(index.centroids)), index.matrix.sizes)
    np.testing.assert_array_equal(own, expected)
    assert (index.matrix.sizes > 0).all()
    assert index.queries is index.matrix


def test_the_truth_of_the_sample_is_that_of_float64(index):
    np.testing.assert_array_equal(index.truth, neighbors(ROWS, 5, index.sample.tolist())[1][:, -1])


def test_clustered_rows_look_into_few_cells(index):
    assert index.probes < len(index.centroids) / 4
    assert 0 < index.share < 0.5


def test_no_block_size_changes_the_index(context, index):
    other = build(context, 5, 0.9, 7, done_here(context))
    for name, array in index.arrays().items():
        np.testing.assert_array_equal(other.arrays()[name], array)


def test_rows_without_clusters_are_refused_where_the_recall_needs_most_pairs(tmp_path):
    context = context_of(saved(np.random.default_rng(0).standard_normal((1500, 64)), tmp_path))
    with pytest.raises(InvalidInput, match=r"a recall of 0\.95 needs .* drop recall"):
        build(context, 5, 0.95, 2, done_here(context))


def test_rows_that_are_all_equal_lie_in_one_cell_and_are_refused(tmp_path):
    context = context_of(saved(np.ones((200, 8), dtype=np.int8), tmp_path))
    with pytest.raises(InvalidInput, match=r"needs 100% of all pairs"):
        build(context, 5, 0.5, 2, done_here(context))


def test_rows_that_are_all_zero_are_refused(tmp_path):
    context = context_of(saved(np.zeros((50, 4)), tmp_path))
    with pytest.raises(InvalidInput, match="of 0 rows with elements no recall can be measured"):
        build(context, 5, 0.9, 2, done_here(context))


def test_other_queries_have_lists_and_a_truth_of_their_own(tmp_path):
    queries = clustered(400, 16, seed=5)
    context = two_matrices(queries, ROWS, tmp_path)
    index = build(context, 5, 0.8, 2, done_here(context))
    assert sorted(index.queries.numbers.tolist()) == list(range(400))
    scores = scores_between(queries[index.sample], ROWS)
    np.testing.assert_array_equal(index.truth, -np.sort(-scores, axis=1)[:, 4])


def test_a_row_is_taken_from_among_its_own_neighbors():
    keys = encode(np.float32([[1, 0.5, 0.25], [1, 0.75, 0.5]]), np.array([[7, 2, 3], [5, 6, 9]]))
    # The second row is not among its own: those that are equal to it come first.
    found = without_own(keys, np.array([7, 8]))
    np.testing.assert_array_equal(found, [keys[0, 1:], keys[1, :2]])
    assert without_own(keys, None) is keys

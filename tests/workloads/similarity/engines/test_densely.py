import numpy as np
import pytest
import scipy.sparse

from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows, SparseTile
from raysm.workloads.similarity.engines import Best
from raysm.workloads.similarity.engines.sparse import (
    DENSE_ROWS,
    dense_tiles,
    pairs_densely,
    scores_densely,
    topk_densely,
)
from tests.support.dense_rows import expected_keys
from tests.support.reference import pairs, score_rows


def sparse_tile(rows, start=0):
    csr = scipy.sparse.csr_matrix(rows)
    some = SparseRows.of(csr.indptr, csr.indices, csr.data, rows.shape[1])
    return SparseTile(start=start, rows=some, norms=np.linalg.norm(rows.astype(np.float64), axis=1))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    return (rng.integers(1, 9, (60, 12)) * (rng.random((60, 12)) < 0.4)).astype(np.float64)


def test_dense_tiles_are_the_rows_in_their_order_with_the_numbers_that_they_have():
    rows = scipy.sparse.random(DENSE_ROWS + 5, 3, 0.5, random_state=1).toarray()
    parts = list(dense_tiles(sparse_tile(rows, start=100)))
    assert [(part.start, len(part)) for part in parts] == [(100, DENSE_ROWS), (100 + DENSE_ROWS, 5)]
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), rows)


def test_the_best_of_rows_made_dense_are_those_of_float64(rows):
    tile = sparse_tile(rows)
    best = Best.empty(tile.norms, 4)
    topk_densely(tile, tile, best, best, same=True)
    some = tile.norms > 0
    assert np.array_equal(best.keys[some], expected_keys(rows, 4)[some])


def test_the_pairs_of_rows_made_dense_are_counted_from_the_tiles_first_row(rows):
    above, beside = sparse_tile(rows[:25]), sparse_tile(rows[25:], start=25)
    found = [
        (int(row), int(neighbor), score)
        for part in pairs_densely(above, beside, least_score(0.5), same=True)
        for row, neighbor, score in zip(*part, strict=True)
    ]
    assert found == [pair for pair in pairs(rows, 0.5) if pair[0] < 25 <= pair[1]]


def test_the_scores_of_rows_made_dense_come_with_their_place_in_the_tile(rows):
    above, beside = sparse_tile(rows[:25]), sparse_tile(rows[25:], start=25)
    whole = np.full((25, 35), np.nan, dtype=np.float32)
    for row, column, scores in scores_densely(above, beside):
        whole[row : row + len(scores), column : column + scores.shape[1]] = scores
    np.testing.assert_array_equal(whole, score_rows(rows, range(25))[:, 25:])

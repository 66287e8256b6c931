import math

import numpy as np
import pytest
import scipy.sparse

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import prepare
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows, sparse_pays
from raysm.workloads.similarity.engines import Best, Frame
from raysm.workloads.similarity.engines.sparse import SparseEngine, sparse_engine, sparse_norms
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors, pairs, score_rows

KINDS = {
    f"{name}, {kept:.0%}": np.where(np.random.default_rng(2).random(rows.shape) < kept, rows, 0).astype(rows.dtype)
    for name, rows in kinds_of_rows(rows=90, columns=300).items()
    for kept in (0.02, 0.3, 1)
}


def csr(rows):
    return SparseRows.of(np.arange(len(rows) + 1) * rows.shape[1], *_all_elements(rows), rows.shape[1])


def _all_elements(rows):
    return np.tile(np.arange(rows.shape[1]), len(rows)), rows.ravel()


def tiles(rows, cuts):
    sparse = csr(rows)
    norms = sparse_norms(sparse)
    return [
        Tile(start=a, rows=sparse[a:b].scaled(norms.exponents[a:b]), norms=norms.norms[a:b])
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]


def best_of(engine, rows, k, cuts):
    sides = [engine.prepare(tile, Frame.plain(rows.shape[1])) for tile in tiles(rows, cuts)]
    best = [Best.empty(side.tile.norms, k) for side in sides]
    for i in range(len(sides)):
        for j in range(i, len(sides)):
            engine.topk(sides[i], sides[j], best[i], best[j], same=True)
    return decode(np.concatenate([part.keys for part in best]))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", [name for name in KINDS if "100%" not in name or "equal" in name])
def test_neighbors_are_those_of_float64(name, compiled):
    rows = KINDS[name]
    some = np.flatnonzero(sparse_norms(csr(rows)).norms)
    for cuts in ([0, 90], [0, 20, 55, 90]):
        scores, indices = best_of(SparseEngine(compiled=compiled), rows, 7, cuts)
        expected = neighbors(rows, 7)
        assert np.array_equal(indices[some], expected[0][some])
        assert np.array_equal(scores[some], expected[1][some])


def test_segments_change_nothing():
    for name in ("float32, 30%", "near ties, 100%", "zero rows, 30%"):
        rows = KINDS[name]
        expected = best_of(SparseEngine(), rows, 7, [0, 30, 90])
        found = best_of(SparseEngine(segment_rows=11), rows, 7, [0, 30, 90])
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("threshold", [-1, 0, 0.3, 1])
def test_the_pairs_are_those_of_float64(threshold, compiled):
    engine = SparseEngine(compiled=compiled)
    for name in ("zero rows, 2%", "near ties, 30%", "duplicates, 100%", "int8, 30%", "extreme magnitudes, 2%"):
        rows = KINDS[name]
        sides = [engine.prepare(tile, Frame.plain(rows.shape[1])) for tile in tiles(rows, [0, 40, 90])]
        found = []
        for left in sides:
            for right in sides:
                part = engine.pairs(left, right, np.float32(threshold), same=True)
                numbers = np.repeat(np.arange(len(left)) + left.tile.start, np.diff(part.offsets))
                here = list(zip(numbers.tolist(), part.neighbors.tolist(), part.similarities, strict=True))
                assert here == sorted(here)
                found += here
        assert sorted(found) == pairs(rows, np.float32(threshold)), name


@pytest.mark.parametrize("compiled", [True, False])
def test_all_scores_are_those_of_float64(compiled):
    for name in ("float32, 2%", "denormal, 30%", "bool, 100%"):
        first, second = tiles(KINDS[name], [0, 50, 90])
        out = np.empty((50, 40), dtype=np.float32)
        SparseEngine(compiled=compiled).scores(first, second, out)
        assert np.array_equal(out, score_rows(KINDS[name], range(50))[:, 50:])
        assert not np.signbit(out[out == 0]).any()


def test_rows_of_another_matrix_look_for_neighbors():
    engine, queries, rows = SparseEngine(), KINDS["float32, 2%"][:30], KINDS["float64, 2%"]
    left, right = (engine.prepare(tiles(part, [0, len(part)])[0], Frame.plain(300)) for part in (queries, rows))
    best = Best.empty(left.tile.norms, 5)
    engine.topk(left, right, best, None, same=False)
    for i in np.flatnonzero(left.tile.norms):
        scores = score_rows(np.concatenate([queries[i : i + 1], rows]), [0])[0, 1:]
        expected = np.lexsort((np.arange(90), -scores))[:5]
        assert decode(best.keys[i])[1].tolist() == expected.tolist()


@pytest.mark.parametrize("columns", [1, 5, 8, 127, 128, 129, 1000, 4097])
@pytest.mark.parametrize("kept", [0.01, 0.5])
def test_norms_are_those_of_the_dense_rows(columns, kept):
    rng = np.random.default_rng(columns)
    rows = rng.standard_normal((20, columns)) * (rng.random((20, columns)) < kept)
    rows[3] *= 2.0**900
    for kind in (np.float64, np.float32, np.int8):
        dense = rows.astype(kind) if kind == np.float64 else (rows.clip(-1, 1) * 100).astype(kind)
        found, expected = sparse_norms(csr(dense)), prepare(dense)
        assert np.array_equal(found.norms, expected.norms)
        assert np.array_equal(found.exponents, expected.exponents)
        assert (found.integral, found.first_bad) == (expected.integral, expected.first_bad)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_the_first_row_with_nan_or_infinity_is_found(kind):
    rows = np.eye(9, dtype=kind)
    rows[[4, 7], 2] = np.inf, np.nan
    assert sparse_norms(csr(rows)).first_bad == 4


def test_elements_given_twice_are_summed_in_their_own_type_and_zeros_dropped():
    data, indices = np.array([100, 100, 3, 5, -5, 0], dtype=np.int8), np.array([4, 4, 1, 2, 2, 3])
    rows = SparseRows.of(np.array([0, 3, 6]), indices, data, 6)
    dense = np.zeros((2, 6), dtype=np.int8)
    dense[0, [1, 4]] = 3, -56
    assert np.array_equal(rows.dense(), dense)
    assert (rows.indices.tolist(), rows.begins.tolist()) == ([1, 4], [0, 2, 2])


def test_a_cut_of_rows_is_those_rows():
    dense = KINDS["float32, 30%"]
    rows = csr(dense)
    assert np.array_equal(rows[20:50][5:10].dense(), dense[25:30])
    joined = SparseRows.joined([rows[40:60], rows[:3]], np.dtype(np.float64))
    assert np.array_equal(joined.dense(), np.concatenate([dense[40:60], dense[:3]]).astype(np.float64))


def test_what_is_dense_in_truth_is_not_compared_by_its_elements():
    def made(share):
        matrix = scipy.sparse.random(600, 400, density=share, format="csr", random_state=np.random.default_rng(0))
        return SparseRows.of(matrix.indptr, matrix.indices, matrix.data, 400)

    assert sparse_pays(made(0.01), 600)
    assert sparse_pays(made(0.01)[:200], 600)
    assert not sparse_pays(made(0.2), 600)
    assert not sparse_pays(made(0.2)[:200], 600)


def test_the_bound_holds_for_elements_that_float32_flushes():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((90, 64)) < 0.2, np.exp2(rng.integers(-140, 0, (90, 64)).astype(np.float64)), 0)
    scores, indices = best_of(SparseEngine(), rows, 10, [0, 30, 90])
    expected = neighbors(rows, 10)
    some = np.flatnonzero([math.fsum(row) for row in rows])
    assert np.array_equal(indices[some], expected[0][some])
    assert np.array_equal(scores[some], expected[1][some])


def test_an_engine_that_is_not_there_is_named():
    assert sparse_engine("numpy").name == "float32 NumPy, sparse rows made dense"
    with pytest.raises(InvalidRequest, match="'int8'.*NumPy"):
        sparse_engine("int8")

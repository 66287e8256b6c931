import math

import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.arithmetic.score import Tile, prepare
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.engines.protocol import Best, Frame
from raysm.workloads.similarity.engines.sparse import SparseEngine, sparse_norms
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors

KINDS = {
    f"{name}, {kept:.0%}": np.where(np.random.default_rng(2).random(rows.shape) < kept, rows, 0).astype(rows.dtype)
    for name, rows in kinds_of_rows(rows=90, columns=300).items()
    for kept in (0.02, 0.3, 1)
}


def csr(rows):
    return SparseRows(np.arange(len(rows) + 1) * rows.shape[1], *_all_elements(rows), rows.shape[1]).canonical()


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


@pytest.mark.parametrize("name", [name for name in KINDS if "100%" not in name or "equal" in name])
def test_neighbors_are_those_of_float64(name):
    rows = KINDS[name]
    some = np.flatnonzero(sparse_norms(csr(rows)).norms)
    for cuts in ([0, 90], [0, 20, 55, 90]):
        scores, indices = best_of(SparseEngine(300), rows, 7, cuts)
        expected = neighbors(rows, 7)
        assert np.array_equal(indices[some], expected[0][some])
        assert np.array_equal(scores[some], expected[1][some])


@pytest.mark.parametrize(("columns", "kept"), [(1, 0.5), (8, 0.5), (129, 0.5), (1000, 0.01), (4097, 0.5)])
def test_norms_are_those_of_the_dense_rows(columns, kept):
    rng = np.random.default_rng(columns)
    rows = rng.standard_normal((20, columns)) * (rng.random((20, columns)) < kept)
    rows[3] *= 2.0**900
    for kind in (np.float64, np.float32, np.int8):
        dense = rows.astype(kind) if kind == np.float64 else (rows.clip(-1, 1) * 100).astype(kind)
        found, expected = sparse_norms(csr(dense)), prepare(dense)
        assert np.array_equal(found.norms, expected.norms)
        assert np.array_equal(found.exponents, expected.exponents)
        assert found.first_bad == expected.first_bad


def test_the_bound_holds_for_elements_that_float32_flushes():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((90, 64)) < 0.2, np.exp2(rng.integers(-140, 0, (90, 64)).astype(np.float64)), 0)
    scores, indices = best_of(SparseEngine(64), rows, 10, [0, 30, 90])
    expected = neighbors(rows, 10)
    some = np.flatnonzero([math.fsum(row) for row in rows])
    assert np.array_equal(indices[some], expected[0][some])
    assert np.array_equal(scores[some], expected[1][some])

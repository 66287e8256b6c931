import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.keys import decode
from raysm.features.similarity.cluster.arithmetic.score import Tile, prepare
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseRows
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from raysm.features.similarity.cluster.engines.sparse import SparseEngine, sparse_norms
from tests.support.dense_engines import ENGINES, MADE, engine_of
from tests.support.dense_rows import best_of as best_tight
from tests.support.dense_rows import clustered_frame, expected_keys, kinds_of_rows, tight_rows
from tests.support.reference import neighbors, score_rows

KINDS = {
    f"{name}, {kept:.0%}": np.where(
        np.random.default_rng(2).random(rows.shape) < kept, rows, 0
    ).astype(rows.dtype)
    for name, rows in kinds_of_rows(rows=90, columns=300).items()
    for kept in (0.02, 0.3, 1)
}


def csr(rows):
    return SparseRows(
        np.arange(len(rows) + 1) * rows.shape[1], *_all_elements(rows), rows.shape[1]
    ).canonical()


def _all_elements(rows):
    return np.tile(np.arange(rows.shape[1]), len(rows)), rows.ravel()


def tiles(rows, cuts):
    sparse = rows if isinstance(rows, SparseRows) else csr(rows)
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


@pytest.mark.parametrize(
    "name", ["float32, 30%", "float64, 30%", "near ties, 30%", "duplicates, 2%"]
)
def test_the_pairs_of_each_threshold_are_those_of_float64(name):
    rows = KINDS[name][:40]
    engine, (tile,) = SparseEngine(300), tiles(rows, [0, 40])
    side = engine.prepare(tile, Frame.plain(300))
    scores = score_rows(rows, range(40))
    # Each score in turn: the smallest pair is lost if its product may be a little further off than
    # is allowed for.
    for threshold in np.unique(scores):
        found = engine.pairs(side, side, threshold, same=True)
        expected = np.nonzero(np.triu(scores >= threshold, 1))
        assert np.array_equal(np.repeat(np.arange(40), np.diff(found.offsets)), expected[0])
        assert np.array_equal(found.neighbors, expected[1])
        assert np.array_equal(found.similarities, scores[expected])


@pytest.mark.parametrize("columns", [300, 4_000_000])
@pytest.mark.parametrize("kept", [0.02, 0.3])
def test_listing_only_the_columns_of_the_rows_changes_no_byte(columns, kept):
    rng = np.random.default_rng(columns)
    elements = rng.standard_normal((90, 300)) * (rng.random((90, 300)) < kept)
    places = np.sort(rng.choice(columns, 300, replace=False))
    rows = SparseRows(
        np.arange(91) * 300, np.tile(places, 90), elements.ravel(), columns
    ).canonical()
    tile = Tile(start=0, rows=rows, norms=sparse_norms(rows).norms)
    answers = []
    for all_listed in (columns, 0):
        engine = SparseEngine(columns, segment_rows=40, all_listed=all_listed)
        side, best, scores = (
            engine.prepare(tile, Frame.plain(1)),
            Best.empty(tile.norms, 7),
            np.empty((90, 90)),
        )
        engine.topk(side, side, best, best, same=True)
        engine.scores(tile, tile, scores)
        pairs = engine.pairs(side, side, np.float32(0.2), same=True)
        found = (best.keys, scores, pairs.offsets, pairs.neighbors, pairs.similarities)
        answers.append([array.tobytes() for array in found])
    assert answers[0] == answers[1]


def test_two_rows_of_very_many_columns_take_little_memory():
    columns = 1 << 28
    rows = SparseRows(
        np.array([0, 2, 4]), np.array([5, columns - 1, 5, 7], np.int32), np.ones(4), columns
    )
    side = SparseEngine(columns).prepare(
        Tile(start=0, rows=rows, norms=sparse_norms(rows).norms), Frame.plain(1)
    )
    assert side.nbytes < 1000
    assert best_of(SparseEngine(columns), rows, 1, [0, 2])[1].tolist() == [[1], [0]]


@pytest.mark.parametrize("indices", [[0, 5], [-1, 2], [2, 1], [3, 3]])
def test_rows_whose_columns_would_be_written_elsewhere_are_refused(indices):
    rows = SparseRows(np.array([0, 2]), np.array(indices, dtype=np.int32), np.ones(2), 5)
    with pytest.raises(InvalidInput):
        sparse_norms(rows)
    with pytest.raises(InvalidInput):
        SparseEngine(5).prepare(Tile(start=0, rows=rows, norms=np.ones(1)), Frame.plain(5))


def test_rows_whose_elements_do_not_follow_each_other_are_refused():
    rows = SparseRows(np.array([0, 2, 1]), np.arange(2, dtype=np.int32), np.ones(2, np.float32), 5)
    with pytest.raises(InvalidInput):
        sparse_norms(rows)


@pytest.mark.parametrize(
    ("columns", "kept"), [(1, 0.5), (8, 0.5), (129, 0.5), (1000, 0.01), (4097, 0.5)]
)
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
    rows = np.where(
        rng.random((90, 64)) < 0.2, np.exp2(rng.integers(-140, 0, (90, 64)).astype(np.float64)), 0
    )
    scores, indices = best_of(SparseEngine(64), rows, 10, [0, 30, 90])
    expected = neighbors(rows, 10)
    some = np.flatnonzero([math.fsum(row) for row in rows])
    assert np.array_equal(indices[some], expected[0][some])
    assert np.array_equal(scores[some], expected[1][some])


@functools.cache
def problem(noise):
    """Return rows of three clusters beside some of none, zero rows, and one near two centres at once; and the keys."""
    rows, _ = tight_rows(230, 70, 3, noise)
    rows[::20] = np.random.default_rng(1).standard_normal(rows[::20].shape)
    rows[5::60] = 0
    rows[7] = (rows[1] + rows[2]) / 2
    return rows, clustered_frame(rows), expected_keys(rows, 9)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("noise", [1e-8, 1e-3, 0.03])
def test_their_neighbors_are_those_of_float64(name, noise):
    rows, frame, expected = problem(noise)
    engine, some = engine_of(name, 70), rows.any(axis=1)
    assert len(frame.clusters) >= 3
    for cuts in ([0, 230], [0, 33, 150, 230]):
        assert np.array_equal(best_tight(engine, frame, rows, 9, cuts)[some], expected[some])
        lower_bounds = decode(expected[:, -1])[0]
        assert np.array_equal(
            best_tight(engine, frame, rows, 9, cuts, lower_bounds)[some], expected[some]
        )


@pytest.mark.parametrize("name", MADE)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_no_cluster_breaks_the_bound(name, data):
    count, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 90))
    n, k = data.draw(st.integers(8, 140)), data.draw(st.integers(1, 7))
    rows, _ = tight_rows(
        n, columns, count, 2.0 ** -data.draw(st.integers(2, 26)), seed=data.draw(st.integers(0, 99))
    )
    # Few numbers, so that many scores are equal: the index decides between them.
    if data.draw(st.booleans()):
        rows = np.round(rows * 2**12).astype(np.float64)
    rows[n // 2 :: 7] = data.draw(st.sampled_from([0.0, 1.0])) * rows[:1]
    engine, frame, some = engine_of(name, columns), clustered_frame(rows), rows.any(axis=1)
    found = best_tight(engine, frame, rows, k, [0, data.draw(st.integers(1, n - 1)), n])
    assert np.array_equal(found[some], expected_keys(rows, k)[some])


def scored_of(engine, rows, frame):
    n = len(rows)
    before = engine.scored
    best_tight(engine, frame, rows, 10, [0, n // 3, 2 * n // 3, n])
    return (engine.scored - before) / n


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("count", [2, 50])
def test_hardly_more_of_their_pairs_are_scored_than_of_others(name, count):
    n, columns = 1500, 128
    engine = engine_of(name, columns)
    rows, _ = tight_rows(n, columns, count, 1e-3)
    frame = clustered_frame(rows)
    usual = np.random.default_rng(1).standard_normal((n, columns)).astype(np.float32)
    others = scored_of(engine, usual, clustered_frame(usual))
    assert scored_of(engine, rows, frame) < 2 * others
    # What it was before, and is without the clusters' centres: every pair of a cluster.
    if count == 2 and "mixed" not in name:
        assert scored_of(engine, rows, Frame(centre=frame.centre)) > 10 * others

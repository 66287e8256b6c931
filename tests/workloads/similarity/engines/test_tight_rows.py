"""Rows of tight clusters: as exact as others, and hardly more of their pairs are scored; counted, not timed."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.keys import decode
from raysm.workloads.similarity.engines.protocol import Frame
from tests.support.dense_engines import ENGINES, MADE, engine_of
from tests.support.dense_rows import best_of, clustered_frame, expected_keys, tight_rows


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
        assert np.array_equal(best_of(engine, frame, rows, 9, cuts)[some], expected[some])
        lower_bounds = decode(expected[:, -1])[0]
        assert np.array_equal(best_of(engine, frame, rows, 9, cuts, lower_bounds)[some], expected[some])


@pytest.mark.parametrize("name", MADE)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_no_cluster_breaks_the_bound(name, data):
    count, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 90))
    n, k = data.draw(st.integers(8, 140)), data.draw(st.integers(1, 7))
    rows, _ = tight_rows(n, columns, count, 2.0 ** -data.draw(st.integers(2, 26)), seed=data.draw(st.integers(0, 99)))
    # Few numbers, so that many scores are equal: the index decides between them.
    if data.draw(st.booleans()):
        rows = np.round(rows * 2**12).astype(np.float64)
    rows[n // 2 :: 7] = data.draw(st.sampled_from([0.0, 1.0])) * rows[:1]
    engine, frame, some = engine_of(name, columns), clustered_frame(rows), rows.any(axis=1)
    found = best_of(engine, frame, rows, k, [0, data.draw(st.integers(1, n - 1)), n])
    assert np.array_equal(found[some], expected_keys(rows, k)[some])


def scored_of(engine, rows, frame):
    n = len(rows)
    before = engine.scored
    best_of(engine, frame, rows, 10, [0, n // 3, 2 * n // 3, n])
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

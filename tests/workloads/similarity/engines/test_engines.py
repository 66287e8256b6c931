import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.workloads.similarity.engines.protocol import Frame
from tests.support.dense_engines import ENGINES, MADE, engine_of
from tests.support.dense_rows import assert_exact, best_of, centred, tiles
from tests.support.reference import score_rows
from tests.support.similarity import adversarial


def frames(rows):
    return [Frame.plain(rows.shape[1]), centred(rows)]


@pytest.mark.parametrize("name", ENGINES)
@given(rows=adversarial(9), data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_adversarial_row_breaks_the_bound(name, rows, data):
    rows = rows.astype(data.draw(st.sampled_from([np.float32, np.float64])))
    frame, k = data.draw(st.sampled_from(frames(rows))), data.draw(st.integers(1, len(rows) - 1))
    assert_exact(engine_of(name, rows.shape[1]), frame, rows, k)


def scored(engine, rows, frame, k=10):
    cuts = [len(rows) * at // 3 for at in range(4)]
    before = engine.scored
    best_of(engine, frame, rows, k, cuts)
    return (engine.scored - before) / len(rows)


@pytest.mark.parametrize("name", MADE)
def test_only_few_pairs_are_scored_whatever_the_rows_are(name):
    rng = np.random.default_rng(2)
    engine = engine_of(name, 64)
    normal = rng.standard_normal((3000, 64))
    two = normal[rng.integers(0, 2, 3000)] * rng.uniform(0.5, 2, (3000, 1))
    for rows, most in [
        (normal, 45),
        (1 + 0.01 * normal, 45),
        (np.ones((3000, 64)), 200),
        (normal[rng.integers(0, 30, 3000)], 200),
        (two, 200),
    ]:
        # All other rows are 2,999: what is nearly all alike, or all equal, must not come near that.
        assert scored(engine, rows.astype(np.float32), centred(rows)) < most


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 8, 9, 129, 1021, 5000])
def test_scores_of_every_length_are_numpys_to_the_last_bit(columns, dtype):
    rng = np.random.default_rng(columns)
    engine = engine_of("32 AVX2", columns)
    rows = rng.standard_normal((7, columns)).astype(dtype)
    rows[1::2, : columns // 2] = -rows[::2, : columns // 2][: len(rows[1::2])]
    out = np.empty((7, 7), dtype=np.float32)
    tile = tiles(rows)[0]
    engine.scores(tile, tile, out)
    assert np.array_equal(out, score_rows(rows, range(7)))

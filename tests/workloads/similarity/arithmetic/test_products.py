import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from raysm.workloads.similarity.arithmetic.score import Tile, exact_scores, float32_bound, prepare, scaled
from tests.support.reference import score_rows


def tile(rows):
    found = prepare(rows)
    return Tile(start=0, rows=scaled(rows, found.exponents), norms=found.norms)


def float32_errors(rows):
    """|product - score| of all pairs, both taken as float64."""
    whole = tile(rows)
    inverse = np.divide(1.0, whole.norms, out=np.zeros(len(whole)), where=whole.norms != 0)
    unit = (whole.rows * inverse[:, None]).astype(np.float32)
    return np.abs((unit @ unit.T).astype(np.float64) - score_rows(rows, range(len(rows))))


@given(
    rows=arrays.arrays(
        np.float32,
        st.tuples(st.integers(2, 8), st.sampled_from([1, 2, 5, 16])),
        elements=st.one_of(
            st.floats(-1, 1, width=32),
            st.sampled_from([0.0, 1e18, -1e18, float(np.float32(1e-30)), 2.0**-149, 1 + 2.0**-23]),
        ),
    )
)
@settings(max_examples=200, deadline=None)
def test_adversarial_rows_do_not_break_the_bound(rows):
    assert float32_errors(rows).max() <= float32_bound(rows.shape[1])


def test_the_bound_holds_for_long_rows_of_one_sign_and_of_alternating_signs():
    rng = np.random.default_rng(0)
    for columns in (1000, 50_000):
        rows = rng.random((6, columns)).astype(np.float32)
        rows[3:, ::2] *= -1
        assert float32_errors(rows).max() <= float32_bound(columns)


@given(
    rows=arrays.arrays(
        np.float64,
        st.tuples(st.integers(2, 8), st.sampled_from([1, 3, 12])),
        elements=st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e150, 1e-150, 1e-290])),
    )
)
@settings(max_examples=200, deadline=None)
def test_whole_tiles_are_exact_for_adversarial_rows(rows):
    all_rows = tile(rows)
    assert np.array_equal(exact_scores(all_rows, all_rows), score_rows(rows, range(len(rows))))

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.score import least_score, pair_scores, prepare, scaled
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows

KINDS = kinds_of_rows(rows=60)


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 128, 129, 1000, 40_003])
def test_a_score_does_not_depend_on_what_is_computed_beside_it(columns):
    rng = np.random.default_rng(columns)
    count = 40 if columns < 10_000 else 6
    left, right = rng.standard_normal((2, count, columns)).astype(np.float32)
    norms = np.ones(count)
    together = pair_scores(left, right, norms, norms)
    for start, stop in [(0, 1), (1, 2), (1, 4), (count - 3, count), (0, count - 1)]:
        alone = pair_scores(left[start:stop], right[start:stop], norms[start:stop], norms[start:stop])
        assert np.array_equal(alone, together[start:stop])


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_those_of_the_definition(name):
    rows = KINDS[name]
    found = prepare(rows)
    expected = score_rows(rows, range(len(rows)))
    i, j = (index.ravel() for index in np.indices(expected.shape))
    ready = scaled(rows, found.exponents)
    scores = pair_scores(ready[i], ready[j], found.norms[i], found.norms[j])
    assert np.array_equal(scores, expected.ravel())


@given(exponent=st.integers(-1040, 990), other=st.integers(-1040, 990))
def test_a_cosine_of_float64_rows_survives_every_magnitude(exponent, other):
    # A power of two keeps every digit, unless elements become denormal: 3 and 4 have few.
    rows = np.array([[3.0, 4.0, 0.0], [4.0, 3.0, 0.0]])
    rows = np.ldexp(rows, np.array([[exponent], [other]]))
    found = prepare(rows)
    ready = scaled(rows, found.exponents)
    assert pair_scores(ready[:1], ready[1:], found.norms[:1], found.norms[1:])[0] == np.float32(0.96)


@pytest.mark.parametrize(("dtype", "bad"), [(np.float16, np.nan), (np.float32, np.inf), (np.float64, -np.inf)])
def test_the_first_row_that_is_not_finite_is_named(dtype, bad):
    rows = np.ones((10, 3), dtype=dtype)
    rows[7, 1] = rows[4, 2] = bad
    assert prepare(rows).first_bad == 4


@given(threshold=st.floats(-1, 1))
def test_no_float32_lies_between_a_threshold_and_the_least_score_that_reaches_it(threshold):
    least = least_score(threshold)
    assert float(np.nextafter(least, np.float32(-2))) < threshold <= float(least)

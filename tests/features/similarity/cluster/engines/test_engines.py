import functools
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.features.similarity.cluster.arithmetic.score import Tile
from raysm.features.similarity.cluster.engines import bounds
from raysm.features.similarity.cluster.engines.choice import choose, is_cuda, why_no_cuda
from raysm.features.similarity.cluster.engines.compiled import CompiledEngine
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import Frame, unit_sum
from raysm.features.similarity.cluster.kernels.build import (
    AVX2,
    INTEGERS,
    InstructionSet,
    Unavailable,
)
from tests.support.dense_engines import ENGINES, MADE, engine_of
from tests.support.dense_rows import (
    assert_exact,
    best_of,
    centred,
    clustered_frame,
    tight_rows,
    tiles,
)
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


@pytest.mark.parametrize("columns", [1, 2, 3, 64, 1000, 1 << 17, bounds.MAX_COLUMNS])
def test_sums_of_products_of_the_largest_integers_fit_into_32_bits_and_larger_ones_would_not(
    columns,
):
    largest = bounds.largest_integer(columns, 16)
    assert columns * largest**2 < 2**31
    assert largest == 32767 or columns * (largest + 1) ** 2 >= 2**31


def test_int8_is_given_up_where_the_sums_of_a_row_and_of_its_correction_could_overflow():
    most = max(columns for columns in range(1, 40_000) if bounds.largest_integer(columns, 8))
    assert bounds.largest_integer(most, 8) == 127
    assert most * 127 * 2 * (255 + 128) < 2**31 <= (most + 1) * 127 * 2 * (255 + 128)


@pytest.mark.parametrize("columns", [1, 30, 1000])
def test_no_float32_sum_of_products_is_further_off_than_its_bound(columns):
    rng = np.random.default_rng(columns)
    left, right = rng.standard_normal((2, 200, columns)).astype(np.float32)
    # One after the other, the order in which most goes wrong.
    summed = np.add.accumulate(left * right, axis=1, dtype=np.float32)[:, -1]
    exact = (left.astype(np.float64) * right.astype(np.float64)).sum(axis=1)
    sizes = np.linalg.norm(left.astype(np.float64), axis=1) * np.linalg.norm(
        right.astype(np.float64), axis=1
    )
    assert (np.abs(summed - exact) <= bounds.growth(columns) * sizes).all()


@pytest.mark.parametrize("columns", [30, 1000, bounds.MAX_COLUMNS])
def test_a_float32_sum_that_loses_every_product_but_the_first_is_within_its_bound(columns):
    row = np.full(columns, 2.0**-12, dtype=np.float32)
    row[0] = 1
    # Half of the last bit of 1, which is rounded away each time.
    summed = np.add.accumulate(row * row, dtype=np.float32)[-1]
    exact = 1 + (columns - 1) * 2.0**-24
    assert summed == 1
    assert exact - 1 <= bounds.growth(columns) * exact


@pytest.mark.parametrize("columns", [1, 25, 1000, 200_000])
def test_the_bound_of_a_gpus_sum_covers_the_error_of_each_of_its_steps(columns):
    # A step for each column, and for the six that carry the errors of the rows.
    assert bounds.device_growth(columns) >= (1 + 2.0**-22) ** (columns + 6) - 1


@pytest.mark.parametrize("columns", [1, 24, 200])
@pytest.mark.parametrize("length", [0.01, 1.0, 1e6])
def test_float64_rounds_the_terms_of_a_product_about_a_centre_by_less_than_the_slop(
    columns, length
):
    rng = np.random.default_rng(columns)
    centre = rng.standard_normal(columns)
    centre *= length / np.linalg.norm(centre)
    rows = rng.standard_normal((20, columns)) + 10 * centre
    norms = np.linalg.norm(rows, axis=1)
    square = dot(centre, centre)
    slop = bounds.slop(columns, centre)
    for row, norm in zip(rows, norms, strict=True):
        shift = centre @ (row / norm) - centre @ centre
        assert abs(Fraction(shift) - (dot(centre, row) / Fraction(norm) - square)) <= slop


def dot(first, second):
    """Return the product of two vectors without any rounding."""
    return sum(
        Fraction(a) * Fraction(b) for a, b in zip(first.tolist(), second.tolist(), strict=True)
    )


COLUMNS = 19
ROWS = 4250
ALONE, LARGE, ONE_SMALL = [0, 2100], [0, 2100, ROWS], [0, 600, 2750]
"""Tiles that are large enough to seed who is compared with them, of which the last panel is not
full; and one small.
As few rows as show it: fourteen engines compare all their pairs."""

MOST = {2100: 60, 2750: 24, ROWS: 6}
"""For how many of them each row of so many is asked at most."""


@functools.cache
def rows_of(kind):
    if kind == "tight clusters":
        return tight_rows(ROWS, COLUMNS, 2, 1e-3)[0]
    rows = np.random.default_rng(ROWS).standard_normal((ROWS, COLUMNS))
    if kind == "ties":
        rows = np.round(rows)
        rows[::3] = rows[0]
        rows[1::5] = 0
    if kind == "against all others":
        rows = np.abs(rows)
        rows[::40] *= -1
    return rows.astype(np.float32)


@functools.cache
def frame_of(kind):
    return (clustered_frame if kind == "tight clusters" else centred)(rows_of(kind))


@functools.cache
def expected(kind, k, count=ROWS):
    return best_of(PlainEngine(), frame_of(kind), rows_of(kind)[:count], k, [0, count])


@pytest.mark.parametrize("name", [name for name in MADE if "mixed" not in name])
@pytest.mark.parametrize("kind", ["ties", "against all others", "tight clusters"])
def test_rows_of_which_nothing_is_known_find_their_best_in_large_tiles(name, kind):
    engine = engine_of(name, COLUMNS)
    # From one to what all lanes have peaks for on some machine, and more than on any.
    for k, cuts in [(1, ALONE), (6, LARGE), (24, ONE_SMALL), (60, ALONE)]:
        found = best_of(engine, frame_of(kind), rows_of(kind)[: cuts[-1]], k, cuts)
        assert np.array_equal(found, expected(kind, MOST[cuts[-1]], cuts[-1])[:, :k])


def sample(rows):
    rows = rows.astype(np.float32)
    return Tile(start=0, rows=rows, norms=np.linalg.norm(rows.astype(np.float64), axis=1))


def chosen(rows, forced=None, candidates=INTEGERS):
    tile = sample(rows)
    return choose(tile, Frame(centre=unit_sum(tile) / len(rows)), forced, candidates)


def normal(rows=300, columns=64):
    return np.random.default_rng(0).standard_normal((rows, columns))


def next_best():
    """Skip where nothing compiled is to be had at all."""
    try:
        return CompiledEngine(16, AVX2, 64, mixed=False).name
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_engine_that_is_asked_for_is_taken():
    assert chosen(normal(), "NumPy").name == "float64 NumPy"
    assert chosen(normal(), "float32").name.startswith("float32")


def test_an_engine_that_is_not_there_is_refused_by_name():
    with pytest.raises(InvalidRequest, match="'abacus'; it has 'float64 NumPy"):
        chosen(normal(), "abacus")


def test_rows_with_large_elements_are_mixed():
    if "int8" not in chosen(normal(2)).name:
        pytest.skip("this processor multiplies no int8")
    rows = normal(100)
    assert "mixed" not in chosen(rows).name
    rows[np.arange(100), np.arange(100) % 64] = 30
    assert "mixed" in chosen(rows).name


def test_rows_too_long_for_integers_are_multiplied_as_floats():
    assert "int8" not in chosen(normal(2, 100_000)).name


def test_instructions_that_the_kernel_refuses_are_left_for_the_next():
    refused = InstructionSet("refused", (), allowed=lambda: False)
    with pytest.raises(Unavailable, match="refused"):
        CompiledEngine(8, refused, 8, mixed=False)
    assert chosen(normal(), "int", candidates=((8, refused), (16, AVX2))).name == next_best()


def test_a_gpu_is_asked_for_by_its_whole_name_and_says_what_it_lacks(monkeypatch):
    assert [is_cuda(word) for word in ("cuda", "CUDA", "a", "cud", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    # No bound is proven for rows this long.
    assert "may be too far off" in why_no_cuda(1 << 30) or "finds no GPU" in why_no_cuda(1 << 30)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(
        sys.modules, "raysm.features.similarity.cluster.engines.cuda", raising=False
    )
    assert why_no_cuda(4) == "torch is missing"
    with pytest.raises(InvalidRequest, match="'cuda' .*torch"):
        chosen(normal(), "CUDA")

import numpy as np
import pytest

from raysm.workloads.similarity.engines import bounds


@pytest.mark.parametrize("columns", [1, 2, 3, 64, 1000, 1 << 17, bounds.MOST_COLUMNS])
def test_sums_of_products_of_the_largest_integers_fit_into_32_bits_and_larger_ones_would_not(columns):
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
    sizes = np.linalg.norm(left.astype(np.float64), axis=1) * np.linalg.norm(right.astype(np.float64), axis=1)
    assert (np.abs(summed - exact) <= bounds.growth(columns) * sizes).all()

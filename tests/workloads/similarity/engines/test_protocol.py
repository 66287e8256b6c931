"""What all engines are given, and write into."""

import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, encode
from raysm.workloads.similarity.engines.protocol import Best, Frame, PreparedTile, unit_sum
from tests.support.dense_rows import tiles

ROWS = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]], dtype=np.float32)


def test_nobody_is_looked_for_by_a_zero_row_and_the_callers_bounds_stay_as_they_were():
    bounds = np.array([0.5, 0.5, -np.inf], dtype=np.float32)
    best = Best.empty(tiles(ROWS)[0].norms, 4, bounds)
    assert (best.keys == EMPTY_KEY).all()
    assert best.keys.shape == (3, 4)
    assert best.lower_bounds.tolist() == [0.5, np.inf, -np.inf]
    assert bounds.tolist() == [0.5, 0.5, -np.inf]


def test_where_nothing_is_known_every_score_may_be_among_the_best():
    assert Best.empty(np.ones(2), 1).lower_bounds.tolist() == [-np.inf, -np.inf]


def test_what_a_rows_kth_best_reaches_is_the_higher_of_what_was_found_and_what_was_known():
    best = Best.empty(np.ones(3), 2, np.array([-np.inf, 0.9, 0.1], dtype=np.float32))
    best.keys[:2] = encode(np.array([[0.8, 0.25], [0.8, 0.25]], dtype=np.float32), np.array([[1, 2], [1, 2]]))
    np.testing.assert_array_equal(best.lowest(), np.float32([0.25, 0.9, 0.1]))


def test_rows_add_their_directions_and_a_zero_row_adds_nothing():
    np.testing.assert_allclose(unit_sum(tiles(ROWS)[0]), [0.6, -0.2], rtol=1e-15)


@pytest.mark.parametrize("rows", [5, 3000])
def test_directions_are_summed_alike_in_one_step_and_in_several(rows):
    # 1,000 columns: more than 1,048 rows are summed in several steps.
    matrix = np.random.default_rng(0).standard_normal((rows, 1000)).astype(np.float32)
    wide = matrix.astype(np.float64)
    expected = (wide / np.linalg.norm(wide, axis=1)[:, None]).sum(axis=0)
    np.testing.assert_allclose(unit_sum(tiles(matrix)[0]), expected, atol=1e-12)


def test_the_plain_frame_leaves_rows_where_they_are():
    frame = Frame.plain(3)
    assert (frame.centre.tolist(), frame.integral) == ([0.0, 0.0, 0.0], False)


def test_a_prepared_tile_has_as_many_rows_as_the_tile():
    assert len(PreparedTile(tile=tiles(ROWS)[0], prepared=None, nbytes=0)) == 3

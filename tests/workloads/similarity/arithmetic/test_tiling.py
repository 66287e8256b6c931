import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.tiling import blocks_for, rectangle, rounds_in_halves, triangle


@given(rows=st.integers(1, 60), block_rows=st.integers(1, 70))
@settings(deadline=None)
def test_every_unordered_pair_is_in_exactly_one_tile(rows, block_rows):
    met = np.zeros((rows, rows), dtype=int)
    for tile in triangle(rows, block_rows):
        if tile.rows == tile.columns:
            inside = np.arange(tile.rows.start, tile.rows.stop)
            for i, j in itertools.combinations(inside, 2):
                met[i, j] += 1
        else:
            assert tile.rows.stop <= tile.columns.start
            met[tile.rows.start : tile.rows.stop, tile.columns.start : tile.columns.stop] += 1
    assert np.array_equal(met, np.triu(np.ones_like(met), 1))


@given(
    rows=st.integers(1, 40), columns=st.integers(1, 40), block_rows=st.integers(1, 50), block_columns=st.integers(1, 50)
)
@settings(deadline=None)
def test_every_query_meets_every_row_in_exactly_one_tile(rows, columns, block_rows, block_columns):
    met = np.zeros((rows, columns), dtype=int)
    for tile in rectangle(rows, columns, block_rows, block_columns):
        met[tile.rows.start : tile.rows.stop, tile.columns.start : tile.columns.stop] += 1
    assert (met == 1).all()


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 31, 64, 333, 1000])
def test_slots_have_equal_work_to_the_end(slots):
    blocks = blocks_for(slots, 10_000_000, 256, 20_000)
    assert rounds_in_halves(blocks, slots) * slots <= 1.04 * blocks**2

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, TopKAccumulator, decode, encode, zero_row_keys
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.modes.topk import TileBounds, TopK
from raysm.workloads.similarity.tasks.parts import TileTask
from tests.support.dense_rows import TELLING, kinds_of_rows
from tests.support.reference import neighbors
from tests.support.similarity import context_of, saved

KINDS = kinds_of_rows()
NOTHING = np.full(1 << 16, -np.inf, dtype=np.float32)


def task_of(tile, self_join, lower_bounds):
    columns = lower_bounds[tile.columns.start : tile.columns.stop]
    return TileTask(tile, self_join, TileBounds(lower_bounds[tile.rows.start : tile.rows.stop], columns))


def merged(context, k, tiles, folder, max_tile_rows=None):
    """Return (indices, scores) of all rows, by all tiles, each told the lower bounds that are known by then."""
    queries, context = context.queries, replace(context, operand_rows=max_tile_rows)
    accumulator = TopKAccumulator(folder, queries.rows, k)
    for tile in tiles:
        known = accumulator.lower_bounds if context.self_join else NOTHING
        part = TopK(k).compare(context, task_of(tile, context.self_join, known))
        accumulator.merge(tile.rows, part["counts"], part["keys"])
        if "column_keys" in part:
            accumulator.merge(tile.columns, part["column_counts"], part["column_keys"])
    keys = accumulator.read(0, queries.rows)
    accumulator.close()
    zero = np.flatnonzero(queries.norms == 0)
    keys[zero] = zero_row_keys(zero, k, same=context.self_join)
    scores, indices = decode(keys)
    return indices, scores


@given(
    scores=st.lists(st.floats(-1, 1, width=32).map(lambda x: x + 0.0), min_size=1, max_size=20),
    start=st.integers(0, 2**32 - 30),
)
def test_keys_rise_as_scores_fall_and_then_as_indices_rise(scores, start):
    values = np.array(scores, dtype=np.float32)
    indices = np.arange(start, start + len(values))[::-1].copy()
    keys = encode(values, indices)
    order = np.argsort(keys)
    assert order.tolist() == np.lexsort((indices, -values)).tolist()
    back = decode(keys)
    assert np.array_equal(back[0], values)
    assert np.array_equal(back[1], indices)
    assert (keys < EMPTY_KEY).all()


@pytest.mark.parametrize("name", TELLING)
@pytest.mark.parametrize(("max_tile_rows", "k", "count"), [(None, 12, 150), (40, 5, 150), (1, 1, 40)])
def test_neighbors_are_those_of_float64_also_of_a_task_that_does_several_tiles(name, max_tile_rows, k, count, tmp_path):
    rows = KINDS[name][:count]
    context = context_of(saved(rows, tmp_path))
    expected = neighbors(rows, k)
    for block_rows in (33, 1000):
        found = merged(context, k, triangle(len(rows), block_rows), tmp_path, max_tile_rows=max_tile_rows)
        assert np.array_equal(found[0], expected[0])
        assert np.array_equal(found[1], expected[1])

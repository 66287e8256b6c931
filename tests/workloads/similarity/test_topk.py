import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.workloads.blocks import RowBlock, row_blocks
from raysm.workloads.similarity import topk
from raysm.workloads.similarity.topk import NOBODY, decode, encode, topk_block
from tests.support.reference import neighbors
from tests.support.similarity import context_of, kinds_of_rows, saved

KINDS = kinds_of_rows()


def all_blocks(context, k, block_rows):
    keys = np.concatenate([topk_block(context, k, block) for block in row_blocks(context.rows, block_rows)])
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
    assert (keys < NOBODY).all()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("k", [1, 12])
def test_neighbors_are_those_of_float64(name, k, tmp_path):
    rows = KINDS[name]
    context = context_of(saved(rows, tmp_path))
    expected = neighbors(rows, k)
    for block_rows in (17, 150):
        found = all_blocks(context, k, block_rows)
        assert np.array_equal(found[0], expected[0])
        assert np.array_equal(found[1], expected[1])


@pytest.mark.parametrize("name", ["float32", "all equal", "zero rows", "near ties", "extreme magnitudes"])
def test_small_tiles_change_nothing(name, tmp_path):
    rows = KINDS[name]
    context = context_of(saved(rows, tmp_path))
    # Blocks so large that a product holds few columns: k answers come together over several tiles.
    block = RowBlock(0, len(rows))
    for columns in (1, 5, 40):
        keys = topk_block(context, 12, block, columns)
        assert np.array_equal(decode(keys)[0], neighbors(rows, 12)[1])
        assert np.array_equal(decode(keys)[1], neighbors(rows, 12)[0])


def test_k_may_be_all_other_rows(tmp_path):
    rows = KINDS["float64"][:20]
    found = all_blocks(context_of(saved(rows, tmp_path)), 19, 6)
    assert np.array_equal(found[0], neighbors(rows, 19)[0])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_small_problems_equal_float64(tmp_path_factory, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count, columns = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 30))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int32]))
    rows = (rng.standard_normal((count, columns)) * 20).astype(dtype)
    for _ in range(data.draw(st.integers(0, count))):
        rows[rng.integers(count)] = rows[rng.integers(count)] * data.draw(st.sampled_from([0, 1, 1, -1]))
    k = data.draw(st.integers(1, count - 1))
    context = context_of(saved(rows, tmp_path_factory.mktemp("m")))
    found = all_blocks(context, k, data.draw(st.integers(1, count)))
    expected = neighbors(rows, k)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])


def test_only_few_pairs_of_ordinary_rows_are_scored(tmp_path):
    rows = np.random.default_rng(0).standard_normal((3000, 32)).astype(np.float32)
    context = context_of(saved(rows, tmp_path))
    left, right = context.tile(context.open(), 0, 500), context.tile(context.open(), 0, 3000)
    best = np.full((500, 10), NOBODY, dtype=np.uint64)
    near = topk.normalised(left) @ topk.normalised(right).T
    lower = topk._lower_bounds(near, best, topk.float32_bound(32))
    assert np.count_nonzero(near > lower[:, None]) < 500 * 13

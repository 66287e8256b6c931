import heapq
import itertools
import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from raysm.features.similarity.cluster.arithmetic.keys import (
    EMPTY_KEY,
    decode,
    encode,
    zero_row_keys,
)
from raysm.features.similarity.cluster.arithmetic.score import (
    Tile,
    exact_scores,
    float32_bound,
    least_score,
    pair_scores,
    prepare,
    scale_rows,
)
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseRows, sparse_pays
from raysm.features.similarity.cluster.tiling import (
    RowOrder,
    RowRun,
    choose_block_count,
    find_runs,
    rectangle,
    rectangles,
    triangle,
)
from tests.support import adversarial
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import score_rows


def tile(rows):
    found = prepare(rows)
    return Tile(start=0, rows=scale_rows(rows, found.exponents), norms=found.norms)


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


@pytest.mark.parametrize("common", [2**23 - 8, 2**24 - 8, 2**24, 2**31 - 1])
def test_rows_with_too_many_common_elements_for_float32_are_all_scored(common):
    # No two scores, from -1 to 1, are further apart.
    assert float32_bound(common) >= 2


def test_a_score_that_rounds_to_zero_from_below_has_no_sign():
    whole = tile(np.array([[1.0, 0.0], [-1e-60, 1.0]]))
    alone = pair_scores(whole.rows[:1], whole.rows[1:], whole.norms[:1], whole.norms[1:])
    for score in (alone[0], exact_scores(whole, whole)[0, 1]):
        assert score == 0
        assert not np.signbit(score)


@given(
    rows=arrays.arrays(
        np.float64,
        st.tuples(st.integers(2, 8), st.sampled_from([1, 3, 12])),
        elements=st.one_of(
            st.floats(-1e3, 1e3), st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e150, 1e-150, 1e-290])
        ),
    )
)
@settings(max_examples=200, deadline=None)
def test_whole_tiles_are_exact_for_adversarial_rows(rows):
    all_rows = tile(rows)
    assert np.array_equal(exact_scores(all_rows, all_rows), score_rows(rows, range(len(rows))))


@pytest.mark.parametrize("columns", [8, 9, 64, 1000])
@pytest.mark.parametrize("noise", [0, 1e-8])
def test_whole_tiles_are_exact_where_products_cancel_each_other(columns, noise):
    # What is left depends on how sums are rounded, and a product of whole tiles adds in another
    # order.
    rng = np.random.default_rng(columns)
    rows = adversarial.KINDS["cancelling sums"](rng, 30, columns)
    rows *= 1 + noise * rng.standard_normal(rows.shape)
    all_rows = tile(rows)
    assert np.array_equal(exact_scores(all_rows, all_rows), score_rows(rows, range(30)))


KINDS = kinds_of_rows(rows=60)


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 128, 129, 1000, 40_003])
def test_a_score_does_not_depend_on_what_is_computed_beside_it(columns):
    rng = np.random.default_rng(columns)
    count = 40 if columns < 10_000 else 6
    left, right = rng.standard_normal((2, count, columns)).astype(np.float32)
    norms = np.ones(count)
    together = pair_scores(left, right, norms, norms)
    for start, stop in [(0, 1), (1, 2), (1, 4), (count - 3, count), (0, count - 1)]:
        alone = pair_scores(
            left[start:stop], right[start:stop], norms[start:stop], norms[start:stop]
        )
        assert np.array_equal(alone, together[start:stop])


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_those_of_the_definition(name):
    rows = KINDS[name]
    found = prepare(rows)
    expected = score_rows(rows, range(len(rows)))
    i, j = (index.ravel() for index in np.indices(expected.shape))
    ready = scale_rows(rows, found.exponents)
    scores = pair_scores(ready[i], ready[j], found.norms[i], found.norms[j])
    assert np.array_equal(scores, expected.ravel())


@given(exponent=st.integers(-1040, 990), other=st.integers(-1040, 990))
def test_a_cosine_of_float64_rows_survives_every_magnitude(exponent, other):
    # A power of two keeps every digit, unless elements become denormal: 3 and 4 have few.
    rows = np.array([[3.0, 4.0, 0.0], [4.0, 3.0, 0.0]])
    rows = np.ldexp(rows, np.array([[exponent], [other]]))
    found = prepare(rows)
    ready = scale_rows(rows, found.exponents)
    assert pair_scores(ready[:1], ready[1:], found.norms[:1], found.norms[1:])[0] == np.float32(
        0.96
    )


@pytest.mark.parametrize(
    ("dtype", "bad"), [(np.float16, np.nan), (np.float32, np.inf), (np.float64, -np.inf)]
)
def test_the_first_row_that_is_not_finite_is_named(dtype, bad):
    rows = np.ones((10, 3), dtype=dtype)
    rows[7, 1] = rows[4, 2] = bad
    assert prepare(rows).first_bad == 4


@given(threshold=st.floats(-1, 1))
def test_no_float32_lies_between_a_threshold_and_the_least_score_that_reaches_it(threshold):
    least = least_score(threshold)
    assert float(np.nextafter(least, np.float32(-2))) < threshold <= float(least)


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
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    block_rows=st.integers(1, 50),
    block_columns=st.integers(1, 50),
)
@settings(deadline=None)
def test_every_query_meets_every_row_in_exactly_one_tile(rows, columns, block_rows, block_columns):
    met = np.zeros((rows, columns), dtype=int)
    for tile in rectangle(rows, columns, block_rows, block_columns):
        met[tile.rows.start : tile.rows.stop, tile.columns.start : tile.columns.stop] += 1
    assert (met == 1).all()


def time_in_halves(blocks, slots):
    """Return when slots that take the next tile as they become free have done all, in units of half a tile."""
    free = [0] * slots
    for work in [1] * blocks + [2] * (blocks * (blocks - 1) // 2):
        heapq.heappush(free, heapq.heappop(free) + work)
    return max(free)


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 31, 64, 333, 1000])
def test_slots_have_equal_work_to_the_end(slots):
    blocks = choose_block_count(slots, 10_000_000, 256, 20_000)
    # A triangle of blocks is as much work as its square of half tiles.
    assert time_in_halves(blocks, slots) * slots <= 1.04 * blocks**2


@given(
    slots=st.integers(1, 100),
    rows=st.integers(1, 10_000),
    least=st.integers(1, 500),
    most=st.integers(1, 500),
)
def test_blocks_have_at_most_as_many_rows_as_memory_allows_and_not_fewer_than_are_worth_it(
    slots, rows, least, most
):
    blocks = choose_block_count(slots, rows, least, most)
    assert math.ceil(rows / blocks) <= most
    assert blocks == math.ceil(rows / most) or rows // blocks >= least or blocks == 1


NUMBERS = st.lists(st.integers(0, 40), unique=True).map(
    lambda numbers: np.array(sorted(numbers), dtype=np.int64)
)


@given(numbers=NUMBERS)
def test_runs_of_consecutive_numbers_have_each_number_at_its_index(numbers):
    runs = list(find_runs(numbers))
    found = [(run.offset + at, run.start + at) for run in runs for at in range(run.rows)]
    assert found == list(enumerate(numbers.tolist()))
    # No two runs could be one.
    assert all(
        first.start + first.rows < second.start for first, second in itertools.pairwise(runs)
    )


@given(rows=NUMBERS, columns=NUMBERS)
def test_rectangles_of_consecutive_rows_and_columns_have_each_entry_once(rows, columns):
    met = np.zeros((len(rows), len(columns)), dtype=int)
    for block, above, beside in rectangles(rows, columns):
        assert rows[above].tolist() == list(range(block.rows.start, block.rows.stop))
        assert columns[beside].tolist() == list(range(block.columns.start, block.columns.stop))
        met[above, beside] += 1
    assert (met == 1).all()


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), data=st.data())
def test_rows_between_two_numbers_are_found_at_their_places(lengths, data):
    numbers = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    offset, runs, places = 0, [], {}
    # The runs lie in any order.
    for some in data.draw(st.permutations(numbers)):
        runs.append(RowRun(int(some[0]), offset, len(some)))
        places |= dict(zip(some.tolist(), range(offset, offset + len(some)), strict=True))
        offset += len(some)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, offset), st.integers(0, offset))))
    found = [
        (run.start + at, run.offset + at)
        for run in RowOrder.of(runs).between(start, stop)
        for at in range(run.rows)
    ]
    assert found == [(number, places[number]) for number in range(start, stop)]
    # Where no order is given, the places are the numbers.
    assert list(RowOrder.identity(offset).between(0, stop)) == (
        [RowRun(0, 0, stop)] if stop else []
    )


def rows_of(matrix):
    return SparseRows(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1]).canonical()


def random_rows(rows=40, columns=30, share=0.2, seed=0, dtype=np.float32):
    return scipy.sparse.random(rows, columns, share, format="csr", random_state=seed, dtype=dtype)


@st.composite
def csr_arrays(draw):
    """Arrays of CSR as files may hold them: columns in any order, some twice, zeros among the elements."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    total = sum(counts)
    columns = draw(st.lists(st.integers(0, 4), min_size=total, max_size=total))
    data = draw(
        st.lists(st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0]), min_size=total, max_size=total)
    )
    begins = np.concatenate([[0], np.cumsum(counts)])
    return begins, np.array(columns, dtype=np.int32), np.array(data, dtype=np.float32)


@given(csr_arrays())
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_the_file_columns_rise_each_once_and_no_zero_is_kept(arrays):
    begins, indices, data = arrays
    rows = SparseRows(begins, indices, data, 5).canonical()
    dense = np.zeros((len(begins) - 1, 5), dtype=np.float32)
    np.add.at(dense, (np.repeat(np.arange(len(dense)), np.diff(begins)), indices), data)
    np.testing.assert_array_equal(rows.dense(), dense)
    assert (rows.data != 0).all()
    for start, stop in zip(rows.begins, rows.begins[1:], strict=False):
        assert (np.diff(rows.indices[start:stop]) > 0).all()


@pytest.mark.parametrize(("share", "pays"), [(0.0005, True), (0.2, False)])
def test_elements_are_worth_it_where_rows_share_few_columns(share, pays):
    rows = rows_of(random_rows(rows=2000, columns=5000, share=share))
    assert sparse_pays(rows, 2000) is pays
    # A sample of them, in proportion, says the same.
    assert sparse_pays(rows[:500], 2000) is pays


def test_zero_rows_have_the_first_rows_as_neighbors_but_not_themselves():
    rows = np.array([0, 2, 5])
    scores, neighbors = decode(zero_row_keys(rows, 3, same=True))
    assert neighbors.tolist() == [[1, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert not scores.any()
    assert decode(zero_row_keys(rows, 3, same=False))[1].tolist() == [[0, 1, 2]] * 3

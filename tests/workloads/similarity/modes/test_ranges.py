import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.workloads.similarity.modes.mode import Ranges


@pytest.mark.parametrize("cut", [Ranges.even, Ranges.falling])
@given(rows=st.integers(1, 500), count=st.integers(1, 40))
def test_every_row_is_in_one_range_and_no_range_is_empty(cut, rows, count):
    ranges = cut(rows, count)
    blocks = list(ranges)
    assert len(blocks) == len(ranges) == min(rows, count)
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(rows))
    assert all(block.rows for block in blocks)


def test_falling_ranges_have_about_as_many_pairs_with_later_rows():
    pairs = [sum(10_000 - 1 - row for row in range(block.start, block.stop)) for block in Ranges.falling(10_000, 8)]
    assert max(pairs) < 1.01 * min(pairs)


@given(
    rows=st.integers(1, 300), count=st.integers(1, 20), numbers=st.lists(st.integers(0, 299), unique=True).map(sorted)
)
def test_numbers_come_to_the_range_that_has_them(rows, count, numbers):
    ranges = Ranges.even(rows, count)
    blocks = list(ranges)
    some = np.array([number for number in numbers if number < rows], dtype=np.int64)
    dealt = list(ranges.of(some))
    assert [number for _, part in dealt for number in some[part].tolist()] == some.tolist()
    for at, part in dealt:
        assert len(some[part])
        assert blocks[at].start <= some[part][0]
        assert some[part][-1] < blocks[at].stop

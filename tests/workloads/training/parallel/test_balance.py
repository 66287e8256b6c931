"""Where a row of blocks is cut."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.stages import balance_stages


def dearest(costs, starts):
    stops = [*starts[1:], len(costs)]
    return max(sum(costs[start:stop]) for start, stop in zip(starts, stops, strict=True))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_no_other_cut_has_a_cheaper_dearest_stage(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    starts = balance_stages(costs, stages)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert len(starts) == stages
    every = (dearest(costs, [0, *cuts]) for cuts in combinations(range(1, len(costs)), stages - 1))
    assert dearest(costs, starts) == min(every)


def test_more_stages_than_blocks_are_refused():
    with pytest.raises(InvalidRequest, match="3 stages need at least as many blocks, but the model has 2"):
        balance_stages([1.0, 1.0], 3)

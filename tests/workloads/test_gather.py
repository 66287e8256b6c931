import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.errors import NoRoom
from raysm.workloads.gather import check_room, regroup

pytestmark = pytest.mark.smoke


def test_room_is_checked_before_anything_is_written(tmp_path):
    with pytest.raises(NoRoom, match=r"0.05 GB free, the result needs 0.06 GB; give the instance a larger volume"):
        check_room([(tmp_path / "later", 30_000_000), (tmp_path, 30_000_000)], free=lambda path: 50_000_000)
    assert check_room([(tmp_path, 30_000_000)], free=lambda path: 50_000_000) is None


@given(sizes=st.lists(st.integers(0, 20), max_size=12), size=st.integers(1, 15))
def test_regrouping_keeps_the_order_and_depends_on_the_total_alone(sizes, size):
    values = np.arange(sum(sizes))
    cuts = np.cumsum([0, *sizes])
    chunks = ((values[a:b], -values[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True))
    groups = list(regroup(chunks, size))
    assert [len(group[0]) for group in groups[:-1]] == [size] * (len(groups) - 1)
    assert np.concatenate([[], *(group[0] for group in groups)]).tolist() == values.tolist()
    assert all(np.array_equal(group[0], -group[1]) for group in groups)
    assert all(len(group[0]) for group in groups)

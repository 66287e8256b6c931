import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, decode, encode


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

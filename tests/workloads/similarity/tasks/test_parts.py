"""Parts come back from a record as they were, and say who computed them with what."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part

ANY_ARRAY = arrays.arrays(
    st.sampled_from([np.uint64, np.float32, np.int8, np.bool_]), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)
)


def through_bytes(part):
    return decode_part(memoryview(b"".join(bytes(buffer) for buffer in encode_part(part))))


@given(st.dictionaries(st.text(max_size=5), ANY_ARRAY, max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_part_comes_back_as_it_was(values):
    part = Part(arrays=values, peaks={"algo-1": 5, "algo-2": 7}, seconds=0.25, engines=("int8 AMX",))
    back = through_bytes(part)
    assert (back.peaks, back.seconds, back.engines) == (part.peaks, part.seconds, part.engines)
    assert list(back.arrays) == list(values)
    for name, array in values.items():
        assert (back.arrays[name].dtype, back.arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(back.arrays[name], array)


def test_arrays_begin_on_boundaries_where_they_can_be_mapped_and_keep_their_order():
    turned = np.arange(12, dtype=np.float32).reshape(3, 4).T
    part = Part(arrays={"a": np.ones(3), "b": np.arange(5, dtype=np.uint8), "c": turned}, peaks={}, seconds=0.0)
    data = b"".join(bytes(buffer) for buffer in encode_part(part))
    back = decode_part(memoryview(data))
    begin = np.frombuffer(data, dtype=np.uint8).ctypes.data
    assert {(array.ctypes.data - begin) % 64 for array in back.arrays.values()} == {0}
    np.testing.assert_array_equal(back.arrays["c"], turned)

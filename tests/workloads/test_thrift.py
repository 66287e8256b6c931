import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.workloads.thrift import BINARY, I32, I64, LIST, STRUCT, decode, encode

NUMBERS = st.tuples(st.sampled_from([I32, I64]), st.integers(-(2**31), 2**31 - 1))
VALUES = st.recursive(
    NUMBERS | st.tuples(st.just(BINARY), st.binary(max_size=200)),
    lambda inner: (
        st.tuples(st.just(STRUCT), st.dictionaries(st.integers(1, 40), inner, max_size=4))
        | st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20).map(lambda values: (LIST, (I32, values)))
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.integers(1, 300), VALUES, max_size=6))
def test_a_struct_comes_back(struct):
    assert decode(encode(struct)) == struct


def test_arrows_own_footer_is_written_as_it_was_read():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1, 2, None], "y": [["a"], [], ["b", "c"]]}), sink)
    file = sink.getvalue().to_pybytes()
    footer = file[-8 - int.from_bytes(file[-8:-4], "little") : -8]
    assert encode(decode(footer)) == footer


def test_a_kind_that_no_header_has_is_refused():
    with pytest.raises(ValueError, match="the kind 11"):
        encode({1: (11, {})})

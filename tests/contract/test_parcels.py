"""Large values: their buffers travel beside the pickle, aligned and without copies."""

import pickle

import numpy as np
import pytest

from raysm.contract.parcels import SMALL_BYTES, Pickled, load, size_of
from raysm.contract.session import Outcome


def parcel_of(value):
    pickled = Pickled()
    pickle.Pickler(pickled, protocol=5, buffer_callback=pickled.take_buffer).dump(value)
    return pickled.parcel()


LARGE = np.arange(SMALL_BYTES, dtype=np.float64)
VALUES = [
    None,
    {"a": [1, "text"]},
    np.arange(10),
    LARGE,
    {"both": LARGE, "reversed": LARGE[::-2], "bytes": bytes(3 * SMALL_BYTES), "odd": np.ones(SMALL_BYTES + 1, np.int8)},
    [np.full(SMALL_BYTES + number, number % 251, np.uint8) for number in range(1000)],
    np.zeros((0, 3)),
    np.asfortranarray(LARGE.reshape(256, 256)),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_arrives_as_it_was(value):
    pieces = parcel_of(value)
    arrived = load(bytearray().join(pieces))
    assert size_of(pieces) == len(b"".join(pieces))
    np.testing.assert_equal(arrived, value)


def test_a_large_array_is_not_copied_and_what_arrives_is_aligned_and_writable():
    assert any(
        isinstance(piece, memoryview) and piece.obj is not None and len(piece) == LARGE.nbytes
        for piece in parcel_of(LARGE)
    )
    content = bytearray().join(Outcome(pickled=parcel_of({"x": b"odd", "array": LARGE})).pieces())
    array = load(Outcome.decode(content).pickled)["array"]
    array[0] = 7
    assert np.shares_memory(array, np.frombuffer(content, np.uint8))
    assert array.flags.aligned

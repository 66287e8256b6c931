"""Messages of the data channel as bytes."""

import hashlib
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.ssm import frames
from raysm.contract.ssm.frames import Flag, Frame, PayloadType, acknowledgement, decode, encode, flag, notice

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@given(
    st.builds(
        Frame,
        type=st.sampled_from([frames.INPUT, frames.OUTPUT, frames.ACKNOWLEDGE]),
        sequence=st.integers(0, 2**62),
        payload_type=st.integers(0, 2**32 - 1),
        payload=st.binary(max_size=2000),
        flags=st.integers(0, 3),
        id=st.uuids(),
    )
)
def test_what_was_encoded_is_decoded(frame):
    assert decode(encode(frame)) == frame


def test_every_field_stands_where_the_plugin_puts_it():
    data = encode(Frame(type=frames.INPUT, sequence=7, payload_type=1, payload=b"abc", flags=1, id=UUID))
    assert struct.unpack_from(">I", data, 0) == (116,)
    assert data[4:36] == b"input_stream_data".ljust(32)
    assert struct.unpack_from(">I", data, 36) == (1,)
    assert struct.unpack_from(">q", data, 48) == (7,)
    assert struct.unpack_from(">Q", data, 56) == (1,)
    assert data[64:72] == UUID.bytes[8:]  # the least significant half first
    assert data[72:80] == UUID.bytes[:8]
    assert data[80:112] == hashlib.sha256(b"abc").digest()
    assert struct.unpack_from(">II", data, 112) == (1, 3)
    assert data[120:] == b"abc"


def test_a_type_may_be_padded_with_zeros_and_a_header_may_be_longer():
    data = encode(Frame(type=frames.OUTPUT, payload=b"abc"))
    padded = data[:4] + b"output_stream_data".ljust(32, b"\0") + data[36:]
    assert decode(padded).type == frames.OUTPUT
    longer = struct.pack(">I", 120) + data[4:120] + b"????" + data[120:]
    assert decode(longer).payload == b"abc"


@pytest.mark.parametrize("cut", [0, 50, 119, 121])
def test_what_is_cut_off_is_refused(cut):
    with pytest.raises(ValueError, match="message"):
        decode(encode(Frame(type=frames.OUTPUT, payload=b"abc"))[:cut])


def test_a_payload_that_is_not_what_its_digest_says_is_refused():
    data = encode(Frame(type=frames.OUTPUT, payload=b"abc"))
    with pytest.raises(ValueError, match="digest"):
        decode(data[:-1] + b"x")


def test_messages_of_the_service_need_no_digest():
    data = encode(Frame(type=frames.START))
    assert decode(data[:80] + bytes(32) + data[112:]).type == frames.START


def test_an_acknowledgement_names_what_came():
    frame = Frame(type=frames.OUTPUT, sequence=5, id=UUID)
    answer = decode(acknowledgement(frame))
    assert (answer.type, answer.flags) == (frames.ACKNOWLEDGE, 3)
    assert answer.document() == {
        "AcknowledgedMessageType": "output_stream_data",
        "AcknowledgedMessageId": str(UUID),
        "AcknowledgedMessageSequenceNumber": 5,
        "IsSequentialMessage": True,
    }


def test_a_notice_has_its_words_and_a_payload_that_is_no_object_is_refused():
    assert decode(notice(frames.CHANNEL_CLOSED, Output="bye")).document() == {"Output": "bye"}
    assert decode(notice(frames.PAUSE)).payload == b""
    with pytest.raises(ValueError, match="no JSON object"):
        Frame(type="x", payload=b"[]").document()


def test_flags_are_numbers_of_four_bytes():
    assert flag(Flag.TERMINATE_SESSION) == b"\0\0\0\2"
    assert PayloadType.FLAG == 10

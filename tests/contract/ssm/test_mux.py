"""Many connections in one stream of bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.ssm.mux import DATA_BYTES, Command, Event, Mux


def test_a_clients_streams_are_odd_from_3_and_a_servers_even():
    client, server = Mux(is_client=True), Mux(is_client=False)
    assert [client.open()[0] for _ in range(3)] == [3, 5, 7]
    assert server.open()[0] == 2


def test_the_bytes_are_those_of_smux():
    mux = Mux(is_client=True)
    assert mux.open()[1] == bytes.fromhex("01 00 0000 03000000")
    assert mux.push(3, b"ab") == [bytes.fromhex("01 02 0200 03000000") + b"ab"]
    assert mux.finish(3) == bytes.fromhex("01 01 0000 03000000")
    assert mux.nop() == bytes.fromhex("01 03 0000 00000000")


@given(st.lists(st.tuples(st.integers(3, 9), st.binary(max_size=3000)), max_size=8), st.data())
def test_frames_may_be_cut_anywhere(sent, data):
    mux = Mux(is_client=True)
    stream = b"".join(frame for number, payload in sent for frame in mux.push(number, payload))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    there = Mux(is_client=False)
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += there.receive(stream[start:end])
    assert {event.command for event in events} <= {Command.PSH}
    for number in range(3, 10):
        expected = b"".join(payload for other, payload in sent if other == number)
        assert b"".join(event.data for event in events if event.stream == number) == expected


def test_a_frame_fills_one_message():
    assert [len(frame) for frame in Mux(is_client=True).push(3, bytes(DATA_BYTES + 1))] == [1024, 9]


def test_opening_and_closing_are_events_and_a_sign_of_life_is_none():
    client, server = Mux(is_client=True), Mux(is_client=False)
    number, opening = client.open()
    assert server.receive(opening + client.nop() + client.finish(number)) == [
        Event(Command.SYN, 3),
        Event(Command.FIN, 3),
    ]


@pytest.mark.parametrize("header", ["02 00 0000 03000000", "01 04 0000 03000000"])
def test_another_version_is_refused(header):
    with pytest.raises(ValueError, match="only version 1"):
        Mux(is_client=True).receive(bytes.fromhex(header))

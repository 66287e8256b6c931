"""Two ends of a channel that loses, doubles and reorders, with a clock of their own."""

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysm.contract.ssm.frames import INPUT, OUTPUT, Frame, PayloadType, acknowledgement, decode
from raysm.contract.ssm.sequence import AHEAD, Sequence


def numbered(number):
    return Frame(type=OUTPUT, sequence=number, payload=b"x", id=uuid.UUID(int=number))


def exchange(payloads, chance, lost, doubled, cut):
    """Send all payloads over a bad channel; return what arrived, and how long it took."""
    here, there = Sequence(sends=INPUT, window=16), Sequence(sends=OUTPUT)
    waiting, way, arrived, now_s = list(payloads), [], [], 0.0
    while waiting or not here.is_acknowledged:
        assert now_s < 4000, "it goes on for ever"
        now_s += 0.05
        sent = []
        while waiting and here.has_room:
            sent.append(here.send(PayloadType.OUTPUT, waiting.pop(0), now_s))
        if chance.random() < cut:
            way.clear()
            sent += here.resume(now_s)
        sent += here.due(now_s)
        for data in sent:
            way += [data] * (0 if chance.random() < lost else 2 if chance.random() < doubled else 1)
        chance.shuffle(way)
        for data in way:
            frame = decode(data)
            answers = [there.receive(frame)]
            while (taken := there.take()) is not None:
                arrived.append(taken.payload)
                answers.append(there.delivered(taken))
            for answer in answers:
                if answer is not None and chance.random() >= lost:
                    here.acknowledged(decode(answer), now_s)
        way.clear()
    return arrived


@settings(max_examples=50, deadline=None)
@given(
    payloads=st.lists(st.binary(min_size=1, max_size=8), max_size=60),
    seed=st.integers(0, 2**32),
    lost=st.floats(0, 0.4),
    doubled=st.floats(0, 0.5),
    cut=st.floats(0, 0.2),
)
def test_everything_arrives_once_and_in_order(payloads, seed, lost, doubled, cut):
    assert exchange(payloads, random.Random(seed), lost, doubled, cut) == payloads


def test_the_first_message_says_that_it_is():
    sequence = Sequence(sends=INPUT)
    assert [decode(sequence.send(1, b"x", 0.0)).flags for _ in range(2)] == [1, 0]


def test_what_is_not_acknowledged_is_sent_again_later_and_later():
    sequence = Sequence(sends=INPUT)
    data = sequence.send(1, b"x", 0.0)
    times = []
    while len(times) < 5:
        now_s = sequence.next_due_s()
        assert sequence.due(now_s - 0.001) == []
        assert sequence.due(now_s) == [data]
        times.append(now_s)
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert gaps == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_slow_line_is_waited_for():
    sequence = Sequence(sends=INPUT)
    for turn in range(50):
        data = sequence.send(1, b"x", float(turn))
        sequence.acknowledged(decode(acknowledgement(decode(data))), turn + 0.6)
    assert sequence.round_trip_s == pytest.approx(0.6, rel=0.05)
    sequence.send(1, b"x", 100.0)
    assert sequence.next_due_s() > 100.6


def test_the_window_closes_and_opens_again():
    sequence = Sequence(sends=INPUT, window=2)
    first = sequence.send(1, b"x", 0.0)
    sequence.send(1, b"y", 0.0)
    assert not sequence.has_room
    sequence.acknowledged(decode(acknowledgement(decode(first))), 0.1)
    assert sequence.has_room


def test_minutes_without_an_acknowledgement_are_the_end_but_not_those_without_a_connection():
    sequence = Sequence(sends=INPUT)
    sequence.send(1, b"x", 0.0)
    sequence.resume(299.0)
    assert sequence.due(400.0)
    with pytest.raises(TimeoutError, match="not acknowledged within 300 s"):
        sequence.due(700.0)


def test_whoever_does_not_read_says_now_and_then_that_he_is_there():
    sequence = Sequence(sends=INPUT)
    assert sequence.still_here(0.0) is None
    for number in range(3):
        sequence.receive(numbered(number))
    answered = [second for second in range(200) if sequence.still_here(float(second)) is not None]
    assert answered == [60, 120, 180]
    assert sequence.still_here(1000.0) is None  # nothing is owed any more
    assert sequence.delivered(sequence.take()) is None


def test_a_sender_that_hears_now_and_then_goes_on():
    sequence = Sequence(sends=INPUT)
    first = sequence.send(1, b"x", 0.0)
    sequence.send(1, b"y", 0.0)
    sequence.acknowledged(decode(acknowledgement(decode(first))), 250.0)
    assert sequence.due(540.0)
    with pytest.raises(TimeoutError, match="not acknowledged within 300 s"):
        sequence.due(551.0)


def test_whoever_does_not_read_holds_up_the_sender():
    sequence = Sequence(sends=INPUT)
    assert [sequence.receive(numbered(number)) for number in range(3)] == [None] * 3
    assert sequence.receive(numbered(1)) is None  # it comes again, and is not read yet
    frame = sequence.take()
    assert decode(sequence.delivered(frame)).document()["AcknowledgedMessageSequenceNumber"] == 0


def test_what_comes_out_of_turn_is_acknowledged_at_once_and_once():
    sequence = Sequence(sends=INPUT)
    assert sequence.receive(numbered(1)) is not None
    assert sequence.take() is None
    assert sequence.receive(numbered(0)) is None
    assert sequence.delivered(sequence.take()) is not None
    assert sequence.delivered(sequence.take()) is None
    assert sequence.receive(numbered(1)) is not None  # again: its acknowledgement was lost


def test_what_is_too_far_ahead_is_not_kept():
    sequence = Sequence(sends=INPUT)
    assert sequence.receive(numbered(AHEAD + 1)) is None
    assert sequence.held == 0


def test_what_is_no_acknowledgement_is_refused():
    with pytest.raises(ValueError, match="no acknowledgement"):
        Sequence(sends=INPUT).acknowledged(numbered(0), 0.0)

"""Two ends of a data channel, joined by connections that lose, double and close."""

import asyncio
import random

import pytest

from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import CHANNEL_CLOSED, INPUT, OUTPUT, PayloadType, notice

WAIT_S = 120


class Pair:
    """A client and an agent, and the connections between them."""

    def __init__(self, *, lost=0.0, doubled=0.0, deliver=None):
        self.chance = random.Random(1)
        self.lost, self.doubled = lost, doubled
        self.got = {INPUT: [], OUTPUT: []}
        self.client = Conversation(deliver or self.taker(OUTPUT), sends=INPUT)
        self.agent = Conversation(self.taker(INPUT), sends=OUTPUT)

    def taker(self, kind):
        async def take(frame):
            self.got[kind].append(frame)

        return take

    async def connect(self):
        """Join both by a new connection."""
        self.client.attach(self.line(self.agent))
        self.agent.attach(self.line(self.client))

    def line(self, other):
        async def transmit(data):
            await asyncio.sleep(0)
            if self.chance.random() >= self.lost:
                await other.receive(data)
                if self.chance.random() < self.doubled:
                    await other.receive(data)

        return transmit

    def payloads(self, kind):
        return [frame.payload for frame in self.got[kind]]

    def end(self):
        for conversation in (self.client, self.agent):
            conversation.end(ConnectionResetError("over"))


def run(scenario, **options):
    async def within():
        pair = Pair(**options)
        try:
            async with asyncio.timeout(WAIT_S):
                await scenario(pair)
        finally:
            pair.end()

    asyncio.run(within())


def numbers(count):
    return [str(number).encode() for number in range(count)]


async def send_all(conversation, count):
    for payload in numbers(count):
        await conversation.send(PayloadType.OUTPUT, payload)
    assert await conversation.drain(WAIT_S)


def test_what_is_sent_arrives_in_both_directions():
    async def scenario(pair):
        await pair.connect()
        await asyncio.gather(send_all(pair.client, 1000), send_all(pair.agent, 1000))
        assert pair.payloads(INPUT) == pair.payloads(OUTPUT) == numbers(1000)

    run(scenario)


def test_a_bad_line_changes_nothing_of_it():
    async def scenario(pair):
        await pair.connect()
        await asyncio.gather(send_all(pair.client, 300), send_all(pair.agent, 300))
        assert pair.payloads(INPUT) == pair.payloads(OUTPUT) == numbers(300)

    run(scenario, lost=0.1, doubled=0.2)


def test_what_is_sent_without_a_connection_goes_by_the_next_one():
    async def scenario(pair):
        sending = asyncio.ensure_future(send_all(pair.client, 700))
        await asyncio.sleep(0.01)
        assert not sending.done()  # the window is full
        await pair.connect()
        pair.client.detach()
        await asyncio.sleep(0.01)
        await pair.connect()
        await sending
        assert pair.payloads(INPUT) == numbers(700)

    run(scenario)


def test_whoever_does_not_read_holds_up_the_sender_but_not_the_other_direction():
    gate = asyncio.Event()

    async def slow(frame):
        await gate.wait()

    async def scenario(pair):
        await pair.connect()
        stuck = asyncio.ensure_future(send_all(pair.agent, 2000))
        await send_all(pair.client, 2000)
        assert pair.payloads(INPUT) == numbers(2000)
        assert not stuck.done()
        gate.set()
        await stuck

    run(scenario, deliver=slow)


def test_what_stands_outside_the_streams_is_delivered_at_once_and_rubbish_is_passed_over():
    async def scenario(pair):
        await pair.client.receive(b"rubbish")
        await pair.client.receive(notice(CHANNEL_CLOSED, Output="bye"))
        assert [frame.type for frame in pair.got[OUTPUT]] == [CHANNEL_CLOSED]

    run(scenario)


def test_after_the_end_nobody_sends():
    async def scenario(pair):
        await pair.connect()
        pair.client.end(ConnectionResetError("it is over"))
        with pytest.raises(ConnectionResetError, match="it is over"):
            await pair.client.send(PayloadType.OUTPUT, b"x")
        assert str(pair.client.error) == "it is over"

    run(scenario)


def test_the_end_wakes_whoever_waits_for_room():
    async def scenario(pair):
        sending = asyncio.ensure_future(send_all(pair.client, 700))
        await asyncio.sleep(0.01)
        pair.client.end(ConnectionResetError("it is over"))
        with pytest.raises(ConnectionResetError):
            await sending

    run(scenario)


def test_a_message_that_cannot_be_used_ends_it():
    async def refuse(frame):
        raise ValueError("no smux")

    async def scenario(pair):
        await pair.connect()
        await pair.agent.send(PayloadType.OUTPUT, b"x")
        while pair.client.error is None:
            await asyncio.sleep(0.01)
        assert "no smux" in str(pair.client.error)

    run(scenario, deliver=refuse)


def test_a_connection_that_breaks_while_it_sends_is_no_error():
    async def broken(data):
        raise ConnectionResetError

    async def scenario(pair):
        pair.client.attach(broken)
        await pair.client.send(PayloadType.OUTPUT, b"x")
        await pair.connect()
        assert await pair.client.drain(WAIT_S)

    run(scenario)

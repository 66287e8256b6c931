"""Messages, acknowledgements, cuts and slow readers in every order: nothing is lost or comes twice, and it goes on."""

import asyncio
import contextlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raysm.contract.ssm.frames import INPUT, OUTPUT, Frame, PayloadType, acknowledgement, decode, encode
from tests.support.lines import End, Wire
from tests.support.virtual_time import VirtualTimeLoop

SOON_S = 120.0
"""Of the loop's own time, which costs none of ours."""
ENDS = st.sampled_from([0, 1])


class Channel(RuleBasedStateMachine):
    """Two ends, and a connection between them that does what the rules say."""

    def __init__(self):
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.wires = ()

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    @initialize(windows=st.tuples(st.sampled_from([4, 1000]), st.sampled_from([4, 1000])))
    def begin(self, windows):
        async def make():
            self.ends = [End(sends, window, 8) for sends, window in zip((INPUT, OUTPUT), windows, strict=True)]

        self.run(make())

    @rule(end=ENDS, count=st.integers(1, 60))
    def somebody_sends(self, end, count):
        self.ends[end].send(count)
        self.pass_time(0.0)

    @precondition(lambda self: not self.wires)
    @rule(room=st.sampled_from([1, 3, 1000]), flows=st.tuples(st.booleans(), st.booleans()))
    def a_connection_comes(self, room, flows):
        async def connect():
            self.wires = tuple(Wire(room, flows=flow) for flow in flows)
            self.ends[0].connections.put_nowait((self.wires[0], self.wires[1]))
            self.ends[1].connections.put_nowait((self.wires[1], self.wires[0]))

        self.run(connect())
        self.pass_time(0.0)

    @precondition(lambda self: self.wires)
    @rule(end=ENDS, count=st.integers(1, 20))
    def some_messages_arrive(self, end, count):
        self.wires[end].credit += count
        self.wires[end].change()
        self.pass_time(0.0)

    @precondition(lambda self: any(wire.messages for wire in self.wires))
    @rule(doubled=st.booleans())
    def a_message_is_lost_or_comes_twice(self, doubled):
        # By the service between the two ends: what joins them is more than one connection of TCP.
        for wire in self.wires:
            if wire.messages:
                first = wire.messages.popleft()
                wire.messages.extendleft([first, first] if doubled else [])

    @precondition(lambda self: self.wires)
    @rule()
    def it_is_cut(self):
        for wire in self.wires:
            wire.cut()
        self.wires = ()
        self.pass_time(0.0)

    @rule(end=ENDS)
    def somebody_stops_reading(self, end):
        self.ends[end].reads.clear()

    @rule(end=ENDS)
    def somebody_reads_on(self, end):
        self.ends[end].reads.set()
        self.pass_time(0.0)

    @rule(seconds=st.sampled_from([0.0, 0.11, 1.0, 5.0]))
    def pass_time(self, seconds):
        # A little more than nothing: so all that can be done now is done first.
        self.run(asyncio.sleep(seconds + 0.001))

    @invariant()
    def all_that_came_was_sent_once_and_in_order(self):
        for end in getattr(self, "ends", ()):
            assert end.got == list(range(len(end.got)))
            assert end.conversation.error is None

    def teardown(self):
        try:
            if hasattr(self, "ends"):
                self.in_the_end_everybody_has_everything()
        finally:
            self.loop.close()

    def in_the_end_everybody_has_everything(self):
        async def until_all_is_there():
            async with asyncio.timeout(SOON_S):
                while any(len(end.got) < other.sent for end, other in (self.ends, self.ends[::-1])):
                    await asyncio.sleep(0.1)

        if self.wires:
            self.it_is_cut()
        self.a_connection_comes(1000, (True, True))
        for end in (0, 1):
            self.somebody_reads_on(end)
        self.run(until_all_is_there())
        self.all_that_came_was_sent_once_and_in_order()


Channel.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_whatever_happens_everything_arrives_once = Channel.TestCase


@pytest.fixture
def loop():
    """A loop whose hours take no time."""
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def numbered(number):
    return encode(Frame(type=OUTPUT, sequence=number, payload_type=PayloadType.OUTPUT, payload=str(number).encode()))


def test_what_follows_a_lost_message_does_not_keep_it_from_being_read(loop):
    # As AWS's agent sends, which waits for no acknowledgement: the first is lost at a cut, ten thousand follow.
    async def scenario():
        end = End(INPUT, 512, 8000)
        async with asyncio.timeout(SOON_S):
            for number in (*range(1, 9000), 0):
                await end.conversation.receive(numbered(number))
                end.conversation.attach(lambda data: asyncio.sleep(0))
            while len(end.got) < 9000:
                await asyncio.sleep(0.1)
        return end.got

    assert loop.run_until_complete(scenario()) == list(range(9000))


def test_a_sender_waits_for_the_oldest_message_though_later_ones_are_acknowledged(loop):
    async def scenario():
        sent = []

        async def acknowledge_all_but_the_first(data):
            sent.append(data)
            if len(sent) > 1:
                await end.conversation.receive(acknowledgement(decode(data)))

        end = End(INPUT, 4, 8000)
        end.conversation.attach(acknowledge_all_but_the_first)
        end.send(100)
        await asyncio.sleep(0.05)
        return len(sent)

    assert loop.run_until_complete(scenario()) == 4


def test_a_new_connection_carries_a_whole_window_at_once(loop):
    async def scenario():
        lost, again = [], []

        async def lose(data):
            lost.append(data)

        async def keep(data):
            again.append(data)

        end = End(INPUT, 512, 8000)
        end.conversation.attach(lose)
        end.send(1000)
        await asyncio.sleep(0.05)
        end.conversation.detach()
        end.conversation.attach(keep)
        await asyncio.sleep(0.05)
        return lost, again

    lost, again = loop.run_until_complete(scenario())
    assert len(lost) == 512
    assert again == lost


def test_both_ends_may_have_more_to_say_than_the_line_takes(loop):
    async def scenario():
        ends = [End(INPUT, 64, 8000), End(OUTPUT, 64, 8000)]
        wires = [Wire(1, flows=True), Wire(1, flows=True)]
        for end, mine, theirs in zip(ends, wires, wires[::-1], strict=True):
            end.send(500)
            end.connections.put_nowait((mine, theirs))
        async with asyncio.timeout(SOON_S):
            while any(len(end.got) < 500 for end in ends):
                await asyncio.sleep(0.1)

    loop.run_until_complete(scenario())


def test_settling_waits_for_what_came_and_for_no_more(loop):
    async def scenario():
        end = End(INPUT, 512, 8000)
        end.conversation.attach(lambda data: asyncio.sleep(0))
        end.reads.clear()
        for number in (0, 1, 2, 4):
            await end.conversation.receive(numbered(number))
        settling = asyncio.ensure_future(end.conversation.settle())
        await asyncio.sleep(1)
        assert not settling.done()
        end.reads.set()
        await asyncio.wait_for(settling, SOON_S)
        return end.got

    assert loop.run_until_complete(scenario()) == [0, 1, 2]


def test_a_conversation_that_nobody_answers_ends_after_minutes_and_says_so(loop):
    async def scenario():
        end = End(INPUT, 512, 8000)
        end.conversation.attach(lambda data: asyncio.sleep(0))
        end.send(1)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(end.conversation.ended.wait(), 310)
        assert str(end.conversation.error) == "a message was not acknowledged within 300 s"

    loop.run_until_complete(scenario())

"""The agent of one session, with a client that is slow, away, or gone; hours of it take no time."""

import asyncio

import pytest

from raysm.contract.ssm import handshake
from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import CHANNEL_CLOSED, INPUT, PayloadType
from raysm.local.server.ssm.agent import Agent
from raysm.local.server.ssm.documents import Work
from tests.support.ssm import Here
from tests.support.virtual_time import VirtualTimeLoop

COUNT = 700
"""Messages: more than a window."""


class Talker:
    """Work that says something, and is done."""

    def __init__(self, ends, count):
        self.ends, self.count = ends, count

    async def run(self):
        for number in range(self.count):
            await self.ends.send(PayloadType.OUTPUT, str(number).encode())

    async def take(self, frame):
        pass

    async def close(self):
        pass


class Listener:
    """A client that reads when it may, and the connection that joins it with an agent."""

    def __init__(self, count=COUNT, idle_s=1200.0):
        self.got, self.may_read = [], asyncio.Event()
        self.conversation = Conversation(self._take, sends=INPUT)
        self.agent = Agent(
            "s-1",
            Here(),
            Work(session_type="Standard_Stream", properties={}, begin=lambda ends: Talker(ends, count)),
            multiplexing=True,
            idle_s=idle_s,
        )
        self.agent.start()

    async def _take(self, frame):
        if frame.type == CHANNEL_CLOSED:
            # As a client that has heard it: what came before is still to be read.
            assert not self.agent.ended.is_set()
            self.got.append("closed")
        elif frame.payload_type == PayloadType.HANDSHAKE_REQUEST:
            await self.conversation.send(PayloadType.HANDSHAKE_RESPONSE, handshake.answer(frame.document())[1])
        elif frame.payload_type == PayloadType.OUTPUT:
            await self.may_read.wait()
            self.got.append(int(frame.payload))

    def connect(self):
        self.line = self.conversation.receive
        self.conversation.attach(self.agent.receive)
        self.agent.attach(self.line)

    def disconnect(self):
        self.agent.detach(self.line)
        self.conversation.detach()


@pytest.fixture
def loop():
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_whoever_reads_late_gets_everything_before_the_end_is_said(loop):
    async def scenario():
        listener = Listener()
        listener.connect()
        await asyncio.sleep(400)  # a pager: it has taken a screen, and somebody reads it
        assert not listener.agent.ended.is_set()
        listener.may_read.set()
        await asyncio.wait_for(listener.agent.ended.wait(), 60)
        return listener.got

    assert loop.run_until_complete(scenario()) == [*range(COUNT), "closed"]


def test_a_client_that_is_away_when_the_work_is_done_comes_back_for_the_rest(loop):
    async def scenario():
        listener = Listener()
        listener.may_read.set()
        listener.connect()
        await asyncio.sleep(0.001)
        listener.disconnect()
        await asyncio.sleep(30)
        listener.connect()
        await asyncio.wait_for(listener.agent.ended.wait(), 60)
        return listener.got

    assert loop.run_until_complete(scenario()) == [*range(COUNT), "closed"]


def test_one_that_does_not_come_back_is_not_waited_for(loop):
    async def scenario():
        listener = Listener(100)
        listener.connect()
        await asyncio.sleep(1)
        listener.disconnect()
        await asyncio.wait_for(listener.agent.ended.wait(), 70)

    loop.run_until_complete(scenario())


def test_one_that_does_nothing_is_idle_in_the_end(loop):
    async def scenario():
        listener = Listener(idle_s=90.0)
        listener.connect()
        await asyncio.sleep(80)
        assert not listener.agent.ended.is_set()
        await asyncio.wait_for(listener.agent.ended.wait(), 30)
        return listener.got

    assert loop.run_until_complete(scenario()) == ["closed"]

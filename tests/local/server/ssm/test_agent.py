"""An agent with one client before it and a plugin of the test's behind it."""

import asyncio
import json

import pytest

from raysm.contract.ssm import handshake
from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import CHANNEL_CLOSED, INPUT, OUTPUT, Frame, PayloadType, decode
from raysm.local.server.ssm.agent import Agent
from raysm.local.server.ssm.documents import Work
from tests.support.scenarios import run
from tests.support.ssm import Here


class Repeating:
    """A plugin that sends back what it takes, until somebody says the end."""

    def __init__(self, ends, error=None):
        self.ends, self.error, self.closed = ends, error, 0
        self.is_over = asyncio.Event()

    async def run(self):
        if self.error is not None:
            raise self.error
        await self.is_over.wait()

    async def take(self, frame):
        if frame.payload == b"end":
            self.is_over.set()
        else:
            await self.ends.send(PayloadType.OUTPUT, frame.payload)

    async def close(self):
        self.closed += 1
        self.is_over.set()


class Client:
    """The client's end of a data channel, and the agent at its other end."""

    def __init__(self, *, error=None, multiplexing=True, version=handshake.CLIENT_VERSION, **more):
        self.error, self.version = error, version
        self.instance, self.plugin, self.types = Here(), None, []
        self.output, self.closed = asyncio.Queue(), asyncio.get_running_loop().create_future()
        work = Work(session_type="Port", properties={"portNumber": "1"}, begin=self.begin)
        self.agent = Agent("s-1", self.instance, work, multiplexing=multiplexing, **{"idle_s": 600, **more})
        self.conversation = Conversation(self.take, sends=INPUT)
        self.agent.start()

    def begin(self, ends):
        self.plugin = Repeating(ends, self.error)
        return self.plugin

    async def attach(self):
        self.conversation.attach(self.agent.receive)
        self.agent.attach(self.hear)

    async def hear(self, data):
        await self.conversation.receive(data)

    async def take(self, frame):
        if frame.type == CHANNEL_CLOSED:
            self.closed.set_result(frame.document())
            return
        self.types.append(frame.payload_type)
        if frame.payload_type == PayloadType.HANDSHAKE_REQUEST:
            self.agreement, answer = handshake.answer(frame.document())
            answer = json.dumps({**json.loads(answer), "ClientVersion": self.version}).encode()
            await self.conversation.send(PayloadType.HANDSHAKE_RESPONSE, answer)
        elif frame.payload_type == PayloadType.OUTPUT:
            await self.output.put(frame.payload)

    async def close(self):
        await self.agent.end("")
        self.conversation.end(ConnectionResetError("over"))


def test_it_shakes_hands_before_anything_else_and_then_its_plugin_works():
    async def scenario():
        client = Client()
        await client.attach()
        await client.conversation.send(PayloadType.OUTPUT, b"early")
        while client.plugin is None or PayloadType.HANDSHAKE_COMPLETE not in client.types:
            await asyncio.sleep(0)
        await client.conversation.send(PayloadType.OUTPUT, b"abc")
        answer = await client.output.get()
        await client.close()
        return client.types[:3], client.agreement, answer

    types, agreement, answer = run(scenario)
    # What came before the end of the handshake is passed over, as AWS's agent does it.
    assert answer == b"abc"
    assert types == [PayloadType.HANDSHAKE_REQUEST, PayloadType.HANDSHAKE_COMPLETE, PayloadType.OUTPUT]
    assert (agreement.session_type, agreement.properties) == ("Port", {"portNumber": "1"})


@pytest.mark.parametrize(
    ("multiplexing", "version", "expected"),
    [(True, "1.2.650.0", True), (True, "1.1.70.0", True), (True, "1.1.69.0", False), (False, "1.2.650.0", False)],
)
def test_it_multiplexes_only_where_both_can(multiplexing, version, expected):
    async def scenario():
        client = Client(multiplexing=multiplexing, version=version)
        await client.attach()
        while client.plugin is None:
            await asyncio.sleep(0)
        await client.close()
        return client.plugin.ends.multiplexes

    assert run(scenario) is expected


def test_the_end_of_its_plugin_is_the_sessions_end_and_is_told():
    async def scenario():
        client = Client()
        await client.attach()
        while PayloadType.HANDSHAKE_COMPLETE not in client.types:
            await asyncio.sleep(0)
        await client.conversation.send(PayloadType.OUTPUT, b"end")
        closed = await client.closed
        await client.agent.ended.wait()
        client.conversation.end(ConnectionResetError("over"))
        return closed, client.plugin.closed

    closed, times = run(scenario)
    assert (closed["SessionId"], closed["Output"], times) == ("s-1", "", 1)


def test_what_its_plugin_cannot_do_is_told_with_the_end():
    async def scenario():
        client = Client(error=ConnectionRefusedError("nobody listens"))
        await client.attach()
        return await client.closed

    assert run(scenario)["Output"] == "nobody listens"


def test_a_silent_client_is_told_that_its_time_is_over():
    async def scenario():
        client = Client(idle_s=0.2)
        await client.attach()
        return await client.closed

    assert run(scenario)["Output"] == "Session: s-1 timed out."


def test_the_end_of_its_instance_ends_it():
    async def scenario():
        client = Client()
        await client.attach()
        client.instance.exited.set_result(0)
        return await client.closed

    assert run(scenario)["Output"] == "the instance has ended"


def test_an_instance_that_ends_after_the_loop_harms_nobody():
    async def scenario():
        client = Client()
        await client.close()
        return client.instance

    run(scenario).exited.set_result(0)


def test_it_ends_once():
    async def scenario():
        client = Client()
        await client.attach()
        await client.agent.end("first")
        await client.agent.end("second")
        return await client.closed

    assert run(scenario)["Output"] == "first"


def test_a_websocket_that_is_replaced_does_not_take_the_new_one_along():
    async def scenario():
        client, old = Client(), []

        async def before(data):
            old.append(data)

        client.agent.attach(before)
        await client.attach()
        # The end of the old one is heard after the new one has come.
        client.agent.detach(before)
        while PayloadType.HANDSHAKE_COMPLETE not in client.types:
            await asyncio.sleep(0)
        await client.conversation.send(PayloadType.OUTPUT, b"abc")
        answer = await client.output.get()
        await client.close()
        return answer, old

    answer, old = run(scenario)
    assert answer == b"abc"
    assert all(isinstance(decode(data), Frame) and decode(data).type == OUTPUT for data in old)

"""A session's data channel from the client's side, with the embedded agent or a scripted one before it."""

import asyncio
import contextlib
import json
import logging
import os

import pytest
from aiohttp import web

from raysm.client.tunnel.channel import Channel
from raysm.client.tunnel.session import Pass, port_document
from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import CHANNEL_CLOSED, OUTPUT, PayloadType, notice
from raysm.errors import ServiceError
from tests.support.ssm import Served, echoing

WAIT_S = 120


class Scripted:
    """A service whose agent asks for what the test says; each session is let in by any token."""

    def __init__(self, actions=(), last=None):
        self.actions, self.last = actions, last
        self.openings = []

    @contextlib.asynccontextmanager
    async def served(self):
        runner = web.ServerRunner(web.Server(self._serve))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request):
        channel = web.WebSocketResponse()
        await channel.prepare(request)
        self.openings.append(json.loads(await channel.receive_str()))

        async def pass_over(frame):
            pass

        agent = Conversation(pass_over, sends=OUTPUT)
        await agent.attach(channel.send_bytes)
        asked = {"AgentVersion": "3.3.40.0", "RequestedClientActions": list(self.actions)}
        await agent.send(PayloadType.HANDSHAKE_REQUEST, json.dumps(asked).encode())
        if self.last is not None:
            await channel.send_bytes(self.last)
        async for message in channel:
            await agent.receive(message.data)
        agent.end(ConnectionResetError("over"))
        return channel

    async def start(self, target, document):
        return Pass(session="s-1", url=f"ws://127.0.0.1:{self.port}/", token="secret-of-s-1")

    async def resume(self, session):
        return None

    async def terminate(self, session):
        pass


async def pass_over(frame):
    pass


def opened(scripted):
    async def run():
        async with asyncio.timeout(WAIT_S), scripted.served():
            await Channel(scripted, pass_over).open("target", port_document(1))

    asyncio.run(run())


def test_encryption_is_refused_with_the_way_out():
    wanted = {"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "k"}}
    with pytest.raises(ServiceError, match="wants KMSEncryption, which raysm does not speak.*raysm debug"):
        opened(Scripted([wanted]))


def test_a_session_that_is_closed_before_it_begins_says_why():
    with pytest.raises(ServiceError, match="the session ended before it began: not today"):
        opened(Scripted(last=notice(CHANNEL_CLOSED, Output="not today")))


def test_the_token_is_the_first_message_and_nowhere_else(caplog):
    caplog.set_level(logging.DEBUG)
    scripted = Scripted(last=notice(CHANNEL_CLOSED, Output=""))
    with pytest.raises(ServiceError) as raised:
        opened(scripted)
    assert scripted.openings[0]["TokenValue"] == "secret-of-s-1"
    assert "secret-of-s-1" not in caplog.text + str(raised.value)


def test_websockets_are_replaced_before_the_service_closes_them():
    async def run(served, port):
        got = bytearray()

        async def take(frame):
            got.extend(frame.payload)

        channel = Channel(served, take, refresh_s=0.2)
        async with asyncio.timeout(WAIT_S):
            await channel.open("target", port_document(port))
            sent = os.urandom(50_000)
            for start in range(0, len(sent), 1000):
                await channel.send(PayloadType.OUTPUT, sent[start : start + 1000])
                await asyncio.sleep(0.02)
            while len(got) < len(sent):
                await asyncio.sleep(0.01)
            await channel.close()
            await channel.close()
        assert bytes(got) == sent
        assert served.resumed > 2

    with Served(multiplexing=False) as served, echoing() as port:
        asyncio.run(run(served, port))


def test_after_the_end_nothing_is_sent():
    async def run(served, port):
        channel = Channel(served, pass_over)
        async with asyncio.timeout(WAIT_S):
            await channel.open("target", port_document(port))
            await asyncio.to_thread(served.gateway.terminate, channel.session)
            await channel.ended.wait()
            with pytest.raises(OSError, match="session"):
                await channel.send(PayloadType.OUTPUT, b"x")
            await channel.close()

    with Served() as served, echoing() as port:
        asyncio.run(run(served, port))

"""A session's data channel from the client's side, with the embedded agent or a scripted one before it."""

import asyncio
import logging
import os

import pytest

from raysm.client.tunnel.channel import Channel
from raysm.client.tunnel.session import port_document
from raysm.contract.ssm.frames import CHANNEL_CLOSED, PayloadType, notice
from raysm.errors import ServiceError
from tests.support.scripted_agent import ScriptedAgent
from tests.support.ssm import Served, echoing

WAIT_S = 120


async def pass_over(frame):
    pass


def opened(scripted, deliver=pass_over, then=None):
    async def run():
        async with asyncio.timeout(WAIT_S), scripted.served():
            channel = Channel(scripted, deliver)
            await channel.open("target", port_document(1))
            if then is not None:
                await then(channel)

    asyncio.run(run())


def test_encryption_is_refused_with_the_way_out():
    wanted = {"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "k"}}
    with pytest.raises(ServiceError, match="wants KMSEncryption.*in shells.*install AWS's own plugin"):
        opened(ScriptedAgent([wanted]))


def test_a_session_that_is_closed_before_it_begins_says_why():
    with pytest.raises(ServiceError, match="the session ended before it began: not today"):
        opened(ScriptedAgent(last=notice(CHANNEL_CLOSED, Output="not today")))


def test_the_token_is_the_first_message_and_nowhere_else(caplog):
    caplog.set_level(logging.DEBUG)
    scripted = ScriptedAgent(last=notice(CHANNEL_CLOSED, Output=""))
    with pytest.raises(ServiceError) as raised:
        opened(scripted)
    assert scripted.openings[0]["TokenValue"] == "secret-of-s-1"
    assert "secret-of-s-1" not in caplog.text + str(raised.value)


def test_what_came_before_the_end_is_delivered_before_it():
    # The agent says that it is over as soon as it has sent all; whoever reads is slower.
    outputs, got = [str(number).encode() for number in range(200)], []

    async def slowly(frame):
        await asyncio.sleep(0.001)
        got.append(frame.payload)

    async def until_its_end(channel):
        await channel.ended.wait()
        assert got == outputs
        assert str(channel.error) == "that was all"

    opened(ScriptedAgent(outputs=outputs, last=notice(CHANNEL_CLOSED, Output="that was all")), slowly, until_its_end)


def test_a_channel_is_closed_at_once_though_somebody_still_reads():
    async def never(frame):
        await asyncio.Event().wait()

    async def close(channel):
        while not channel.is_over:
            await asyncio.sleep(0.01)
        await channel.close()
        assert channel.ended.is_set()

    opened(ScriptedAgent(outputs=[b"x"], last=notice(CHANNEL_CLOSED, Output="over")), never, close)


def test_whoever_cannot_take_it_ends_the_session():
    async def refuse(frame):
        raise BrokenPipeError("nobody reads")

    async def until_its_end(channel):
        await channel.ended.wait()
        assert "nobody reads" in str(channel.error)

    opened(ScriptedAgent(outputs=[b"x"]), refuse, until_its_end)


def test_a_data_channel_that_brings_nothing_is_tried_later_and_later():
    times = []

    class Watched(ScriptedAgent):
        async def start(self, target, document):
            times.append(asyncio.get_running_loop().time())
            return await super().start(target, document)

        async def resume(self, session):
            times.append(asyncio.get_running_loop().time())
            return await super().resume(session) or self._pass()

    async def close(channel):
        await channel.close()

    opened(Watched(outputs=[b"x"], dumb=4), pass_over, close)
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert len(gaps) == 4
    assert all(gap >= pause_s for gap, pause_s in zip(gaps, (0.1, 0.2, 0.4, 0.8), strict=True))


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

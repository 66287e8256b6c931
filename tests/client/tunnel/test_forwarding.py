"""Connections to a port: how many sessions they take, and what becomes of them when a session ends."""

import asyncio

import pytest

from raysm.client.tunnel.forwarding import Forwarding
from raysm.client.tunnel.session import port_document
from raysm.errors import ServiceError
from tests.support.ssm import Served, echoing

WAIT_S = 120


class Counting(Served):
    """Counts the sessions that were begun."""

    begun = 0

    async def start(self, target, document):
        self.begun += 1
        return await super().start(target, document)


def run(scenario, **switches):
    """Run ``scenario(served, forwarding)`` before a port that echoes."""

    async def within(served, port):
        forwarding = Forwarding(served, "this machine", port_document(port))
        async with asyncio.timeout(WAIT_S):
            try:
                return await scenario(served, forwarding)
            finally:
                await forwarding.close()

    with Counting(**switches) as served, echoing() as port:
        return asyncio.run(within(served, port))


async def echoed(stream, data):
    await stream.write(data)
    answer = b""
    while len(answer) < len(data):
        answer += await stream.read()
    return answer


def test_all_connections_go_by_one_session_where_the_agent_can():
    async def scenario(served, forwarding):
        await forwarding.open()
        await forwarding.open()
        streams = [await forwarding.connect() for _ in range(3)]
        answers = [await echoed(stream, b"%d" % number) for number, stream in enumerate(streams)]
        return answers, served.begun

    assert run(scenario) == ([b"0", b"1", b"2"], 1)


def test_an_older_agent_has_a_session_for_each_and_the_first_is_not_begun_twice():
    async def scenario(served, forwarding):
        await forwarding.open()
        streams = [await forwarding.connect() for _ in range(2)]
        # More than one message of the channel carries.
        answers = [await echoed(stream, bytes([number]) * 3000) for number, stream in enumerate(streams)]
        for stream in streams:
            await stream.close()
        return answers, served.begun, len(set(served.terminated))

    assert run(scenario, multiplexing=False) == ([b"\0" * 3000, b"\1" * 3000], 2, 2)


def test_connections_that_come_at_once_share_the_session_that_the_first_begins():
    async def scenario(served, forwarding):
        streams = await asyncio.gather(*(forwarding.connect() for _ in range(4)))
        return [await echoed(stream, b"x") for stream in streams], served.begun

    assert run(scenario) == ([b"x"] * 4, 1)


def test_the_end_of_a_session_ends_its_connections_and_the_next_one_begins_another():
    async def scenario(served, forwarding):
        stream = await forwarding.connect()
        served.instance.exited.set_result(0)
        ended = await stream.read()
        served.instance = type(served.instance)()
        return ended, await echoed(await forwarding.connect(), b"again"), served.begun

    assert run(scenario) == (b"", b"again", 2)


def test_a_session_that_is_refused_is_no_connection():
    class Refusing(Served):
        async def start(self, target, document):
            raise ServiceError("not today")

    async def within(served):
        forwarding = Forwarding(served, "this machine", port_document(1))
        for attempt in (forwarding.open, forwarding.connect):
            with pytest.raises(ServiceError, match="not today"):
                await attempt()
        await forwarding.close()

    with Refusing() as served:
        asyncio.run(within(served))


def test_what_nobody_used_is_ended_too():
    async def scenario(served, forwarding):
        await forwarding.open()
        await forwarding.close()
        await forwarding.close()
        return len(served.terminated)

    assert run(scenario) == 1

"""Port forwarding at the agent's end, without agent or gateway: frames in, frames out, a socket behind."""

import asyncio
import socket
import threading

import pytest

from raysm.contract.ssm.frames import OUTPUT, Flag, Frame, PayloadType, flag
from raysm.contract.ssm.streams import Streams
from raysm.local.server.ssm.plugin import Ends
from raysm.local.server.ssm.port import MuxPort, PlainPort, connect
from tests.support.scenarios import WAIT_S, run
from tests.support.ssm import Here, echoing


def frame(payload, payload_type=PayloadType.OUTPUT):
    return Frame(type=OUTPUT, payload_type=payload_type, payload=payload)


class Sent:
    """What a plugin has sent to the client."""

    def __init__(self):
        self.messages = asyncio.Queue()

    async def send(self, payload_type, payload):
        await self.messages.put((payload_type, payload))

    def ends(self):
        return Ends(instance=Here(), send=self.send)


def unused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def received(sent, size):
    data = b""
    while len(data) < size:
        payload_type, payload = await sent.messages.get()
        assert payload_type == PayloadType.OUTPUT
        data += payload
    return data


def test_an_instance_is_connected_to_without_blocking_the_loop():
    async def scenario():
        with echoing() as port:
            reader, writer = await connect(Here(), port)
            writer.write(b"abc")
            data = await reader.readexactly(3)
            writer.close()
            await writer.wait_closed()
            return data

    assert run(scenario) == b"abc"


class Slow(Here):
    """An instance that is connected to when the test says so."""

    def __init__(self):
        super().__init__()
        self.goes_on, self.ours, self.theirs = threading.Event(), *socket.socketpair()

    def connect(self, port):
        assert self.goes_on.wait(WAIT_S)
        return self.ours


def test_a_connection_that_nobody_waits_for_any_more_is_closed():
    async def scenario():
        slow = Slow()
        connecting = asyncio.ensure_future(connect(slow, 1))
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        slow.goes_on.set()
        with slow.theirs:
            slow.theirs.settimeout(WAIT_S)
            return await asyncio.to_thread(slow.theirs.recv, 1)

    assert run(scenario) == b""


def test_a_plain_port_carries_one_connection():
    async def scenario():
        sent = Sent()
        with echoing() as port:
            plugin = PlainPort(sent.ends(), port)
            running = asyncio.ensure_future(plugin.run())
            await plugin.take(frame(b"abc"))
            data = await received(sent, 3)
            await plugin.take(frame(flag(Flag.TERMINATE_SESSION), PayloadType.FLAG))
            await running
            await plugin.close()
            await plugin.close()
            return data

    assert run(scenario) == b"abc"


def test_a_plain_port_is_connected_anew_after_the_client_has_closed():
    async def scenario():
        sent = Sent()
        with echoing() as port:
            plugin = PlainPort(sent.ends(), port)
            running = asyncio.ensure_future(plugin.run())
            answers = []
            for data in (b"one", b"two"):
                await plugin.take(frame(data))
                answers.append(await received(sent, 3))
                await plugin.take(frame(flag(Flag.DISCONNECT_TO_PORT), PayloadType.FLAG))
            assert not running.done()
            await plugin.close()
            await running
            return answers

    assert run(scenario) == [b"one", b"two"]


def test_a_plain_port_where_nobody_listens_fails():
    async def scenario():
        await PlainPort(Sent().ends(), unused()).run()

    with pytest.raises(ConnectionRefusedError):
        run(scenario)


def test_a_plain_ports_session_ends_where_nobody_listens_any_more():
    async def scenario():
        sent = Sent()
        with echoing() as port:
            plugin = PlainPort(sent.ends(), port)
            running = asyncio.ensure_future(plugin.run())
            await plugin.take(frame(b"abc"))
            await received(sent, 3)
        await plugin.take(frame(flag(Flag.DISCONNECT_TO_PORT), PayloadType.FLAG))
        await plugin.take(frame(b"more"))
        await running
        await plugin.close()

    run(scenario)


class Client:
    """The client's end of a mux, straight before a plugin."""

    def __init__(self, port):
        self.flags = []
        self.plugin = MuxPort(Ends(instance=Here(), send=self.take), port)
        self.streams = Streams(self.send, is_client=True)

    async def send(self, data):
        await self.plugin.take(frame(data))

    async def take(self, payload_type, payload):
        if payload_type == PayloadType.OUTPUT:
            await self.streams.feed(payload)
        else:
            self.flags.append((payload_type, payload))


def test_a_mux_carries_connections_side_by_side():
    async def scenario():
        with echoing() as port:
            client = Client(port)
            running = asyncio.ensure_future(client.plugin.run())
            streams = [await client.streams.open() for _ in range(3)]
            for number, stream in enumerate(streams):
                await stream.write(b"%d" % number)
            answers = [await stream.read() for stream in streams]
            await client.plugin.take(frame(flag(Flag.TERMINATE_SESSION), PayloadType.FLAG))
            await running
            await client.plugin.close()
            return answers

    assert run(scenario) == [b"0", b"1", b"2"]


def test_a_mux_tells_that_nobody_listens_and_goes_on():
    async def scenario():
        client = Client(unused())
        running = asyncio.ensure_future(client.plugin.run())
        stream = await client.streams.open()
        assert await stream.read() == b""
        assert not running.done()
        await client.plugin.close()
        await running
        return client.flags

    assert run(scenario) == [(PayloadType.FLAG, flag(Flag.CONNECT_TO_PORT_ERROR))]


def test_the_end_of_a_mux_closes_its_connections():
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = Client(server.getsockname()[1])
            await client.streams.open()
            connection, _ = await asyncio.to_thread(server.accept)
            with connection:
                await client.plugin.close()
                connection.settimeout(WAIT_S)
                return await asyncio.to_thread(connection.recv, 1)

    assert run(scenario) == b""

"""The listener of a tunnel, by connections that echo instead of leading to an instance."""

import asyncio
import gc
import socket
import warnings

import pytest

from raysm.client.tunnel.listener import Listener
from raysm.errors import InvalidRequest, ServiceError


class Echo:
    """A stream that sends back what it gets."""

    def __init__(self):
        self.queue = asyncio.Queue()
        self.closed = False

    async def read(self):
        return await self.queue.get()

    async def write(self, data):
        await self.queue.put(data)

    async def close(self):
        self.closed = True


def listening(connect, talk, port=0):
    async def run():
        listener = Listener(connect)
        await listener.listen(port)
        try:
            return await talk(listener)
        finally:
            await listener.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_what_is_sent_comes_back_by_the_connection_that_carries_it():
    async def connect():
        return Echo()

    async def talk(listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"abc")
        answer = await reader.readexactly(3)
        writer.close()
        return answer

    assert listening(connect, talk) == b"abc"


def test_the_end_of_the_local_side_closes_the_stream():
    streams = []

    async def connect():
        streams.append(Echo())
        return streams[0]

    async def talk(listener):
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.close()
        while not (streams and streams[0].closed):
            await asyncio.sleep(0.01)

    listening(connect, talk)


def test_the_end_of_the_stream_closes_the_local_side():
    async def connect():
        stream = Echo()
        await stream.write(b"")
        return stream

    async def talk(listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        rest = await reader.read()
        writer.close()
        return rest

    assert listening(connect, talk) == b""


def test_a_connection_that_cannot_be_carried_ends_and_the_next_is_tried():
    tries = []

    async def connect():
        tries.append(1)
        if len(tries) == 1:
            raise ServiceError("no way")
        return Echo()

    async def talk(listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()

    listening(connect, talk)


def test_closing_ends_every_connection():
    async def connect():
        return Echo()

    async def talk(listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"x")
        await reader.readexactly(1)
        await listener.close()
        assert await reader.read() == b""
        writer.close()

    listening(connect, talk)


def test_closing_ends_a_connection_too_whose_other_end_reads_no_more():
    asked = asyncio.Event()

    class Flood(Echo):
        async def read(self):
            asked.set()
            # More than the buffers of a connection hold: some of it is unsent for ever.
            return b"x" * (64 << 20)

    async def connect():
        return Flood()

    with warnings.catch_warnings(record=True) as seen, socket.socket() as browser:
        warnings.simplefilter("always")
        browser.setblocking(False)

        async def talk(listener):
            await asyncio.get_running_loop().sock_connect(browser, ("127.0.0.1", listener.port))
            await asked.wait()
            await asyncio.sleep(0)

        listening(connect, talk)
        gc.collect()
    assert [str(warning.message) for warning in seen if "unclosed" in str(warning.message)] == []


def test_a_port_that_is_taken_is_named():
    async def connect():
        return Echo()

    async def talk(listener):
        pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest, match=f"127.0.0.1:{port} cannot be listened on"):
            listening(connect, talk, port)

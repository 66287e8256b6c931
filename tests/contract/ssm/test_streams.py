"""Streams over a data channel: what is written at one end is read at the other, and an end is an end for both."""

import asyncio
import socket

import pytest

from raysm.contract.ssm.mux import DATA_BYTES, HEADER
from raysm.contract.ssm.streams import BUFFER_BYTES, ByteStream, Streams, carry
from tests.support.scenarios import run


class Wire:
    """A client's and an agent's ends, joined; ``accepted`` has the streams that the client opened."""

    def __init__(self):
        self.accepted, self.messages = [], []
        self.client = Streams(self.there, is_client=True)
        self.agent = Streams(self.back, is_client=False, accept=self.accepted.append)

    async def there(self, data):
        self.messages.append(data)
        await self.agent.feed(data)

    async def back(self, data):
        self.messages.append(data)
        await self.client.feed(data)


async def nothing(*ignored):
    pass


def plain(send=nothing, leave=nothing):
    return ByteStream(send, leave)


def test_what_is_written_at_either_end_is_read_at_the_other():
    async def scenario():
        wire = Wire()
        stream = await wire.client.open()
        (other,) = wire.accepted
        await stream.write(b"there")
        await other.write(b"back")
        return await other.read(), await stream.read()

    assert run(scenario) == (b"there", b"back")


def test_streams_do_not_mix():
    async def scenario():
        wire = Wire()
        streams = [await wire.client.open() for _ in range(3)]
        for number, stream in enumerate(streams):
            await stream.write(b"%d" % number)
        return [await other.read() for other in wire.accepted]

    assert run(scenario) == [b"0", b"1", b"2"]


def test_a_large_write_goes_in_messages_that_the_channel_carries():
    async def scenario():
        wire = Wire()
        stream = await wire.client.open()
        await stream.write(b"x" * (3 * DATA_BYTES + 1))
        return wire.messages[1:], await wire.accepted[0].read()

    messages, data = run(scenario)
    assert [len(message) for message in messages] == [DATA_BYTES + HEADER.size] * 3 + [1 + HEADER.size]
    assert data == b"x" * (3 * DATA_BYTES + 1)


def test_a_stream_that_is_closed_gives_what_came_before_and_then_ends():
    async def scenario():
        wire = Wire()
        stream = await wire.client.open()
        await stream.write(b"last")
        await stream.close()
        await stream.close()
        (other,) = wire.accepted
        with pytest.raises(BrokenPipeError, match="the stream is closed"):
            await stream.write(b"more")
        return await other.read(), await other.read(), len(wire.messages)

    assert run(scenario) == (b"last", b"", 3)


def test_what_comes_for_a_stream_that_is_closed_is_passed_over():
    async def scenario():
        wire = Wire()
        stream = await wire.client.open()
        (other,) = wire.accepted
        await stream.close()
        await other.write(b"late")
        return await stream.read()

    assert run(scenario) == b""


def test_an_end_that_accepts_nobody_opens_nothing():
    async def scenario():
        alone = Streams(nothing, is_client=True)
        messages = []

        async def send(data):
            messages.append(data)

        await Streams(send, is_client=False).open()
        await alone.feed(messages[0])
        return alone._open

    assert run(scenario) == {}


def test_the_end_of_the_session_ends_every_stream_and_opens_no_more():
    async def scenario():
        wire = Wire()
        stream = await wire.client.open()
        wire.client.end()
        with pytest.raises(ConnectionResetError, match="the session has ended"):
            await wire.client.open()
        sent = len(wire.messages)
        read = await stream.read()
        # Nobody is left to be told.
        await stream.close()
        return read, len(wire.messages) - sent

    assert run(scenario) == (b"", 0)


def test_a_sign_of_life_is_one_frame_that_opens_nothing():
    async def scenario():
        wire = Wire()
        await wire.client.keep_alive()
        return wire.messages, wire.accepted

    messages, accepted = run(scenario)
    assert [len(message) for message in messages] == [HEADER.size]
    assert accepted == []


def test_a_stream_that_nobody_reads_holds_back_who_feeds_it():
    async def scenario():
        stream = plain()
        await stream.feed(b"x" * (BUFFER_BYTES + 1))
        feeding = asyncio.ensure_future(stream.feed(b"y"))
        await asyncio.sleep(0)
        assert not feeding.done()
        first = await stream.read()
        await feeding
        return len(first), await stream.read()

    assert run(scenario) == (BUFFER_BYTES + 1, b"y")


def test_what_waits_for_room_is_let_go_at_the_end():
    async def scenario():
        stream = plain()
        await stream.feed(b"x" * (BUFFER_BYTES + 1))
        feeding = asyncio.ensure_future(stream.feed(b"y"))
        await asyncio.sleep(0)
        stream.finish()
        await feeding
        return len(await stream.read()), await stream.read()

    assert run(scenario) == (BUFFER_BYTES + 1, b"")


async def joined():
    """Return the user's end of a socket, and the streams of the other end."""
    user, own = socket.socketpair()
    user.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=own)
    return user, reader, writer


def test_a_socket_is_carried_in_both_directions_until_it_is_closed():
    async def scenario():
        sent, left = [], []

        async def send(data):
            sent.append(data)

        async def leave():
            left.append(True)

        stream = plain(send, leave)
        user, reader, writer = await joined()
        carrying = asyncio.ensure_future(carry(stream, reader, writer))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(user, b"there")
        await stream.feed(b"back")
        back = await loop.sock_recv(user, 100)
        user.close()
        await carrying
        return b"".join(sent), back, left

    assert run(scenario) == (b"there", b"back", [True])


def test_the_end_of_the_stream_closes_the_socket():
    async def scenario():
        stream = plain()
        user, reader, writer = await joined()
        carrying = asyncio.ensure_future(carry(stream, reader, writer))
        await stream.feed(b"last")
        stream.finish()
        loop = asyncio.get_running_loop()
        data = b""
        while part := await loop.sock_recv(user, 100):
            data += part
        await carrying
        user.close()
        return data

    assert run(scenario) == b"last"

"""Questions over one WebSocket, and their answers."""

import asyncio

import pytest

from raysm.client.session.wire import Exchange
from raysm.contract.session import frame, unframe


class Socket:
    """Takes what is sent; a test answers."""

    def __init__(self):
        self.sent = []

    async def send_bytes(self, content):
        self.sent.append(unframe(content))


def run(script):
    async def go():
        socket = Socket()
        return await asyncio.wait_for(script(Exchange(socket), socket), 60)

    return asyncio.run(go())


async def asking(exchange, *names):
    tasks = [asyncio.create_task(exchange.ask({"call": name}, name.encode())) for name in names]
    await asyncio.sleep(0)
    return tasks


def test_each_answer_comes_to_whoever_asked_in_whatever_order():
    async def script(exchange, socket):
        first, second = await asking(exchange, "a", "b")
        numbers = [head["ask"] for head, _ in socket.sent]
        for number, outcome in zip(reversed(numbers), (b"for b", b"for a"), strict=True):
            exchange.on_answer(frame({"ask": number}, outcome))
        return socket.sent[0][1], (await first)[1], (await second)[1]

    assert run(script) == (b"a", b"for a", b"for b")


def test_an_answer_for_which_nobody_waits_any_more_is_passed_over():
    async def script(exchange, socket):
        (gone,) = await asking(exchange, "a")
        gone.cancel()
        await asyncio.sleep(0)
        exchange.on_answer(frame({"ask": socket.sent[0][0]["ask"]}, b"late"))
        exchange.on_answer(frame({"ask": 99}, b"nobody's"))
        (other,) = await asking(exchange, "b")
        exchange.on_answer(frame({"ask": socket.sent[1][0]["ask"]}, b"for b"))
        return (await other)[1]

    assert run(script) == b"for b"


def test_where_the_connection_breaks_each_that_waits_is_told_so():
    async def script(exchange, socket):
        tasks = await asking(exchange, "a", "b")
        exchange.end()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(error, ConnectionError) for error in run(script))


def test_a_question_that_cannot_be_sent_leaves_nothing_behind():
    class Gone:
        async def send_bytes(self, content):
            raise ConnectionResetError("closing")

    async def script(exchange, socket):
        gone = Exchange(Gone())
        with pytest.raises(ConnectionResetError):
            await gone.ask({}, b"")
        return gone._answers

    assert run(script) == {}

"""The WebSocket of a client: what it asks by it, and what it hears; as any client would."""

import asyncio
import pickle
import time

import aiohttp
import cloudpickle
import pytest

from raysm.contract.session import CALL, CallRequest, Outcome, Versions, frame, unframe
from raysm.request.codec import to_json
from raysm.workloads.session.clients import MAX_MESSAGE_BYTES
from tests.support.sessions import proved, served, until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("session")) as running:
        yield running


def connected(server, script, client="a"):
    """Run the coroutine function ``script(socket)`` with a WebSocket to the server."""

    async def go():
        async with proved(server) as session:
            url = f"http://127.0.0.1:{server.port}/events"
            async with session.ws_connect(url, params={"client": client}, max_msg_size=0) as socket:
                return await asyncio.wait_for(script(socket), 60)

    return asyncio.run(go())


def question(number, id, function=abs, args=(-3,), *, client="", **head):
    request = CallRequest(kind=CALL, name="f", client=client, python=Versions.here().pickles)
    body = cloudpickle.dumps((function, args, {}))
    return frame({"ask": number, "call": id, "wait": 20, "request": to_json(request), **head}, body)


async def answers(socket, count):
    """Return the next answers, by their number; what calls print is passed over."""
    told = {}
    while len(told) < count:
        message = await socket.receive(timeout=60)
        if message.type is aiohttp.WSMsgType.BINARY:
            head, outcome = unframe(message.data)
            told[head["ask"]] = head, outcome
    return told


def value(answer):
    head, outcome = answer
    assert head["status"] == 200, head
    return pickle.loads(Outcome.decode(outcome).pickled)


def test_a_question_is_answered_with_the_outcome(server):
    async def script(socket):
        await socket.send_bytes(question(7, "answered"))
        return await answers(socket, 1)

    assert value(connected(server, script)[7]) == 3


def test_many_questions_are_under_way_at_once_and_a_long_one_holds_nobody_up(server):
    async def script(socket):
        await socket.send_bytes(question(1, "long", time.sleep, (1.0,)))
        await socket.send_bytes(question(2, "short"))
        first = await answers(socket, 1)
        return first, await answers(socket, 1)

    first, second = connected(server, script)
    assert (value(first[2]), [*second]) == (3, [1])


def test_what_is_asked_twice_is_executed_once(server):
    async def script(socket):
        for number in (1, 2):
            await socket.send_bytes(question(number, "twice"))
        return await answers(socket, 2)

    told = connected(server, script)
    assert value(told[1]) == value(told[2]) == 3
    assert server.remote.executed.count("twice") == 1


def test_a_call_that_was_sent_before_is_asked_for_by_another_connection(server):
    async def sends(socket):
        await socket.send_bytes(question(1, "before", client="b"))
        await asyncio.to_thread(until, lambda: server.host.calls.get("before"))

    async def asks(socket):
        await socket.send_bytes(frame({"ask": 1, "call": "before", "wait": 20}))
        return await answers(socket, 1)

    connected(server, sends)
    assert value(connected(server, asks)[1]) == 3


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        ({"call": "unheard"}, 404, "None"),
        ({"call": "x", "request": {"kind": "dance", "name": "f"}}, 400, "no call of the kind 'dance'"),
        ({"call": "x", "request": {"kind": CALL, "name": "f", "python": "2.7"}}, 400, "pickled by Python 2.7"),
        (
            {"call": "x", "wait": "soon", "request": {"kind": CALL, "name": "f"}},
            400,
            "wait is a number of seconds, got 'soon'",
        ),
        ({}, 500, "call"),
    ],
    ids=["unheard", "kind", "python", "wait", "nothing"],
)
def test_what_cannot_be_asked_is_answered_too(server, head, status, words):
    async def script(socket):
        await socket.send_bytes(frame({"ask": 1, **head}))
        return await answers(socket, 1)

    told, outcome = connected(server, script)[1]
    assert (told["status"], outcome) == (status, b"")
    assert words in str(told.get("error"))
    # Nothing of it was executed, nor does the next one find it under the same name.
    assert server.host.calls.get("x") is None


def test_a_large_outcome_is_left_to_the_other_way(server):
    async def script(socket):
        await socket.send_bytes(question(1, "large", bytes, (1 << 20,)))
        return await answers(socket, 1)

    told, outcome = connected(server, script)[1]
    assert (told["elsewhere"], outcome, told["call"]["state"]) == (True, b"", "done")


def test_who_sends_more_than_is_taken_here_is_disconnected(server):
    async def script(socket):
        await socket.send_bytes(bytes(MAX_MESSAGE_BYTES + 1))
        return (await socket.receive(timeout=60)).type, socket.close_code

    assert connected(server, script)[1] == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


def test_a_client_that_left_with_a_question_open_disturbs_nobody(server):
    async def leaves(socket):
        await socket.send_bytes(question(1, "left", time.sleep, (0.5,)))
        await asyncio.to_thread(until, lambda: server.host.calls.get("left"))

    connected(server, leaves)
    until(lambda: server.host.calls.get("left").done.is_set())

    async def script(socket):
        await socket.send_bytes(question(1, "behind"))
        return await answers(socket, 1)

    assert value(connected(server, script)[1]) == 3

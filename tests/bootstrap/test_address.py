"""Names, ports and what to say when they do not answer."""

import asyncio
import socket
import threading

import pytest

from raysm.bootstrap import address


def test_a_name_is_resolved():
    assert asyncio.run(address.resolve("algo-1", lambda host: {"algo-1": "10.0.0.1"}[host])) == "10.0.0.1"


@pytest.mark.parametrize("error", [socket.gaierror("no"), UnicodeError("label too long")])
def test_a_name_that_is_not_known_is_an_oserror(error):
    def lookup(host):
        raise error

    with pytest.raises(OSError, match=str(error)):
        asyncio.run(address.resolve("algo-1", lookup))


def test_a_resolver_that_hangs_holds_nobody_up():
    release = threading.Event()

    async def scenario():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(address.resolve("algo-1", lambda host: str(release.wait(20))), 0.1)

    asyncio.run(scenario())
    release.set()


def test_a_port_answers_or_not():
    async def scenario():
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        open_ = await address.port_answers("127.0.0.1", port)
        server.close()
        await server.wait_closed()
        return open_, await address.port_answers("127.0.0.1", port)

    assert asyncio.run(scenario()) == (True, False)


def test_waits_grow_to_a_second():
    waits = [address.backoff(attempt) for attempt in range(30)]
    assert (waits[0], waits[-1]) == (0.05, 1.0)
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1", True), ("127.0.1.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_loopback_is_known(text, expected):
    assert address.is_loopback(text) is expected


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(), "the name algo-1 does not resolve"),
        (ConnectionRefusedError(), "algo-1 refuses connections on port 6380: nothing listens there"),
        (TimeoutError(), "a firewall or security group may drop the packets"),
        (OSError("no route to host"), "algo-1, port 6380: no route to host"),
    ],
)
def test_an_error_becomes_a_cause(error, words):
    assert words in address.explain(error, "algo-1", 6380)


def test_an_interface_that_is_not_there_has_no_address():
    assert address.interface_address("nosuch0") is None

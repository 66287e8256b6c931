"""Connections, and the parcels that they carry."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys

import numpy as np
import pytest

from raysm.core.protocol import connections
from raysm.core.protocol.connections import (
    GREETING,
    NotProved,
    accept_no_more,
    check_listener,
    connect_to_own,
    has_own_listener,
    is_of_this_machine,
    open_to_own,
    prove_client,
    prove_server,
    without_proxy,
)
from raysm.core.protocol.parcels import SMALL_BYTES, Pickled, load, size_of
from raysm.errors import ForeignListener
from raysm.features.session.protocol import Outcome
from tests.support.another_user import needs_two_users, thief

PROXY = {"HTTP_PROXY": "http://proxy.example:3128"}

linux_only = pytest.mark.skipif(
    not os.path.exists("/proc/net/tcp"), reason="needs Linux's list of sockets"
)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.mark.parametrize(
    ("environ", "known"),
    [
        ({}, None),
        ({"NO_PROXY": "a.org"}, None),
        (PROXY, "algo-1,10.0.0.1"),
        ({**PROXY, "NO_PROXY": "a.org"}, "a.org,algo-1,10.0.0.1"),
        ({**PROXY, "NO_PROXY": "a.org", "no_proxy": "b.org"}, "b.org,algo-1,10.0.0.1"),
        ({**PROXY, "no_proxy": "*"}, "*"),
    ],
)
def test_hosts_are_added_to_those_that_a_proxy_is_not_used_for(environ, known):
    names = {} if known is None else {"no_proxy": known, "NO_PROXY": known}
    assert without_proxy(["algo-1", "10.0.0.1"], environ) == names


def check_found(family, host, asked):
    """Check that the kernel names this process as the one that listens, and nobody after it has ended."""
    with socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::") as server:
        port = server.getsockname()[1]
        assert check_listener(asked, port) == {os.fstat(server.fileno()).st_ino}
        assert has_own_listener(asked, port)
        with connect_to_own(asked, port, 60) as connection:
            assert connection.getpeername()[1] == port
            assert connection.gettimeout() is None
    assert not has_own_listener(asked, port)


WITHOUT_NETLINK = """
import socket
import subprocess
import sys
del socket.AF_NETLINK
from tests.core.protocol.test_connections import check_found
check_found(socket.{}, {!r}, {!r})
"""


@linux_only
@pytest.mark.parametrize("has_netlink", [True, False])
@pytest.mark.parametrize(
    ("family", "host", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_process_of_this_user_is_found_by_each_address_that_it_serves(
    family, host, asked, has_netlink
):
    try:
        socket.create_server((host, 0), family=family).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    if has_netlink:
        check_found(family, host, asked)
    else:
        code = WITHOUT_NETLINK.format(family.name, host, asked)
        subprocess.run([sys.executable, "-c", code], check=True)


def test_a_port_of_another_machine_is_not_checked():
    # An address for documentation, which no machine has (RFC 5737).
    assert has_own_listener("192.0.2.1", 1)
    assert not is_of_this_machine("192.0.2.1")
    assert is_of_this_machine("127.0.0.9")


@needs_two_users
def test_another_users_process_at_one_address_of_a_host_does_not_hide_the_own_at_another():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with thief(port, address="::1") as other:
            other.await_port(port)
            with connect_to_own("localhost", port, 60) as connection:
                assert connection.getpeername()[0] == "127.0.0.1"
            assert other.end() == ""


@needs_two_users
def test_another_users_process_is_refused_and_hears_nothing():
    port = free_port()
    with thief(port) as other:
        other.await_port(port)
        with pytest.raises(ForeignListener, match=rf"uid 65534\).* 127.0.0.1, port {port}"):
            connect_to_own("127.0.0.1", port, 60)
        with pytest.raises(ForeignListener):
            has_own_listener("127.0.0.1", port)
        with pytest.raises(ForeignListener):
            asyncio.run(open_to_own("127.0.0.1", port))
        assert other.end() == ""


async def connected(count, end):
    """Let so many connect to a server that then ends by ``end``; return of how many it knew."""
    known = []
    server = await asyncio.start_server(lambda _, writer: known.append(writer), "127.0.0.1", 0)
    browsers = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(count)]
    # In the first turn of the loop it sees them, in the second it takes all of them, and has made
    # nothing of them yet.
    for _ in range(2):
        await asyncio.sleep(0)
    assert known == []
    await end(server)
    server.close()
    await asyncio.sleep(0)
    for end_of_connection in (*known, *browsers):
        end_of_connection.close()
    await asyncio.sleep(0)
    return len(known)


def test_whoever_has_connected_is_known_to_the_server_before_it_ends():
    assert asyncio.run(connected(20, lambda server: accept_no_more(server.sockets))) == 20


TOKEN = b"t" * 64


class Tap:
    """A pair of connected sockets whose bytes are kept."""

    def __init__(self):
        self.server, self.client = socket.socketpair()
        for end in (self.server, self.client):
            end.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()
        self.client.close()


def shaken(*, server=TOKEN, client=TOKEN, server_port=7, client_port=7):
    """Return what each end raised."""

    async def go():
        with Tap() as tap:

            async def serve():
                try:
                    await prove_server(tap.server, server, server_port)
                finally:
                    tap.server.shutdown(socket.SHUT_RDWR)

            return await asyncio.gather(
                serve(), prove_client(tap.client, client, client_port), return_exceptions=True
            )

    return asyncio.run(go())


@pytest.mark.parametrize(
    "how",
    [{"client": b"another"}, {"server": b"another"}, {"server_port": 8}],
    ids=["client", "server", "port"],
)
def test_of_two_that_differ_the_server_says_nothing_that_depends_on_the_token(how):
    at_server, at_client = shaken(**how)
    assert isinstance(at_server, NotProved)
    assert isinstance(at_client, ConnectionResetError)


def test_two_that_share_a_token_prove_it_to_each_other():
    assert shaken() == [None, None]


def test_a_server_of_another_protocol_is_not_answered():
    async def go():
        loop = asyncio.get_running_loop()
        with Tap() as tap:
            await loop.sock_sendall(
                tap.server, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
            )
            with pytest.raises(NotProved, match="another protocol"):
                await asyncio.wait_for(prove_client(tap.client, TOKEN, 7), 60)
            tap.client.shutdown(socket.SHUT_WR)
            return await loop.sock_recv(tap.server, 100)

    assert asyncio.run(go()) == b""


def test_what_follows_the_handshake_is_left_for_the_next_reader():
    async def go():
        loop = asyncio.get_running_loop()
        with Tap() as tap:
            proving = asyncio.ensure_future(prove_server(tap.server, TOKEN, 7))
            greeting = await loop.sock_recv(tap.client, 1000)
            answer = b"n" * 32 + connections._proof(
                TOKEN, b"client", greeting[len(GREETING) :], b"n" * 32, 7
            )
            await loop.sock_sendall(tap.client, answer[:10])
            await asyncio.sleep(0.05)
            await loop.sock_sendall(tap.client, answer[10:] + b"the first call")
            await proving
            return await loop.sock_recv(tap.server, 100)

    assert asyncio.run(go()) == b"the first call"


def test_the_answers_of_yesterday_prove_nothing_today():
    sent, proofs = [], []

    async def once():
        loop = asyncio.get_running_loop()
        with Tap() as tap:
            proving = asyncio.ensure_future(prove_client(tap.client, TOKEN, 7))
            await loop.sock_sendall(tap.server, GREETING + b"n" * 32)
            sent.append(await loop.sock_recv(tap.server, 1000))
            # What a real server said to the same number the first time.
            proofs.append(
                proofs[0]
                if proofs
                else connections._proof(TOKEN, b"server", b"n" * 32, sent[0][:32], 7)
            )
            await loop.sock_sendall(tap.server, proofs[-1])
            return (await asyncio.gather(proving, return_exceptions=True))[0]

    assert asyncio.run(once()) is None
    assert isinstance(asyncio.run(once()), NotProved)
    assert sent[0] != sent[1]


def parcel_of(value):
    pickled = Pickled()
    pickle.Pickler(pickled, protocol=5, buffer_callback=pickled.take_buffer).dump(value)
    return pickled.parcel()


LARGE = np.arange(SMALL_BYTES, dtype=np.float64)
VALUES = [
    None,
    {"a": [1, "text"]},
    np.arange(10),
    LARGE,
    {
        "both": LARGE,
        "reversed": LARGE[::-2],
        "bytes": bytes(3 * SMALL_BYTES),
        "odd": np.ones(SMALL_BYTES + 1, np.int8),
    },
    [np.full(SMALL_BYTES + number, number % 251, np.uint8) for number in range(1000)],
    np.zeros((0, 3)),
    np.asfortranarray(LARGE.reshape(256, 256)),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_arrives_as_it_was(value):
    pieces = parcel_of(value)
    arrived = load(bytearray().join(pieces))
    assert size_of(pieces) == len(b"".join(pieces))
    np.testing.assert_equal(arrived, value)


def test_a_large_array_is_not_copied_and_what_arrives_is_aligned_and_writable():
    assert any(
        isinstance(piece, memoryview) and piece.obj is not None and len(piece) == LARGE.nbytes
        for piece in parcel_of(LARGE)
    )
    content = bytearray().join(Outcome(pickled=parcel_of({"x": b"odd", "array": LARGE})).pieces())
    array = load(Outcome.decode(content).pickled)["array"]
    array[0] = 7
    assert np.shares_memory(array, np.frombuffer(content, np.uint8))
    assert array.flags.aligned

"""The gateway with our client before it: bad lines, cut connections, strangers."""

import asyncio
import hashlib
import json
import os
import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import aiohttp
import pytest

from raysm.local.scenario import Ssm
from raysm.local.server.ssm.documents import work_of
from raysm.local.server.ssm.gateway import PATH, Gateway
from tests.support.echo import exchange
from tests.support.ssm import Here, Served, echoing

WAIT_S = 300


def echoed(served, size):
    data = os.urandom(size)
    with echoing() as port, served.tunnel(port) as tunnel:
        assert exchange(("127.0.0.1", tunnel.port), data) == data


def test_a_good_line_carries_everything():
    with Served() as served:
        echoed(served, 1_000_000)
        assert served.resumed == 0
        assert len(served.terminated) == 1


def test_a_bad_line_loses_nothing():
    with Served(lost=0.02, doubled=0.05) as served:
        echoed(served, 200_000)


def test_cut_connections_lose_nothing():
    with Served(close_every_s=0.3) as served, echoing() as port, served.tunnel(port) as tunnel:
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=WAIT_S) as connection:
            deadline_s, sent = time.monotonic() + WAIT_S, 0
            while served.resumed < 5:
                assert time.monotonic() < deadline_s
                data = os.urandom(20_000)
                connection.sendall(data)
                back = b""
                while len(back) < len(data):
                    back += connection.recv(1 << 16)
                assert back == data
                sent += 1
        assert sent


@pytest.mark.long
def test_a_hundred_megabytes_arrive_whole_though_the_service_closes_every_two_seconds():
    size, there, here = 100_000_000, hashlib.sha256(), hashlib.sha256()

    def send():
        with source.accept()[0] as connection:
            for _ in range(size // 1_000_000):
                part = os.urandom(1_000_000)
                there.update(part)
                connection.sendall(part)
            connection.recv(1)  # the end of one side ends both

    with socket.create_server(("127.0.0.1", 0)) as source, Served(close_every_s=2.0) as served:
        sending = threading.Thread(target=send)
        sending.start()
        with served.tunnel(source.getsockname()[1]) as tunnel:
            with socket.create_connection(("127.0.0.1", tunnel.port), timeout=WAIT_S) as connection:
                received = 0
                while received < size:
                    part = connection.recv(1 << 20)
                    assert part, f"it ended after {received} bytes"
                    here.update(part)
                    received += len(part)
            assert served.resumed  # how often depends on the machine: it takes 6 to 14 s
        sending.join()
    assert here.digest() == there.digest()


def test_a_service_that_is_away_for_a_while_is_borne():
    with Served(close_every_s=0.5) as served:
        served.away = 3
        with echoing() as port, served.tunnel(port) as tunnel:
            for _ in range(3):
                assert exchange(("127.0.0.1", tunnel.port), b"abc" * 1000) == b"abc" * 1000
                time.sleep(0.3)


def test_an_agent_without_a_mux_has_a_session_for_each_connection():
    with Served(multiplexing=False) as served, echoing() as port, served.tunnel(port) as tunnel:
        for number in range(3):
            data = str(number).encode() * 3000
            assert exchange(("127.0.0.1", tunnel.port), data) == data
        deadline_s = time.monotonic() + WAIT_S
        while len(set(served.terminated)) < 3:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def test_a_silent_connection_ends_with_its_session_and_the_next_one_begins_another():
    with Served(idle_s=0.5) as served, echoing() as port, served.tunnel(port) as tunnel:
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=WAIT_S) as connection:
            assert connection.recv(1) == b""
        assert exchange(("127.0.0.1", tunnel.port), b"abc") == b"abc"


def test_the_end_of_the_instance_ends_its_connections():
    with Served() as served, echoing() as port, served.tunnel(port) as tunnel:
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=WAIT_S) as connection:
            connection.sendall(b"abc")
            assert connection.recv(3) == b"abc"
            served.instance.exited.set_result(0)
            assert connection.recv(1) == b""


def test_whoever_does_not_read_holds_nobody_up_for_ever():
    with Served() as served, echoing() as port, served.tunnel(port) as tunnel:
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=WAIT_S) as lazy:
            lazy.sendall(bytes(200_000))
        assert exchange(("127.0.0.1", tunnel.port), b"abc") == b"abc"


def got(served, url, opening):
    """Return what a stranger gets of a data channel before it is closed."""

    async def ask():
        async with aiohttp.ClientSession() as client, client.ws_connect(url) as channel:
            await channel.send_str(opening)
            messages = []
            async with asyncio.timeout(60):
                async for message in channel:
                    messages.append(message.data)
            return messages

    return asyncio.run(ask())


def opening_with(token):
    return json.dumps({"MessageSchemaVersion": "1.0", "TokenValue": token, "ClientId": "x", "RequestId": "x"})


def test_a_stranger_gets_nothing():
    with Served() as served, echoing() as port:
        mine, other = served.begin(portNumber=str(port)), served.begin(portNumber=str(port))
        assert got(served, mine.url, opening_with("wrong")) == []
        assert got(served, mine.url, opening_with("")) == []
        assert got(served, mine.url, "no json") == []
        assert got(served, mine.url, "[]") == []
        assert got(served, mine.url, opening_with(other.token)) == []
        assert got(served, mine.url.replace(mine.session, "nobody-00000000000000000"), opening_with(mine.token)) == []


def test_a_token_lets_in_once_and_the_last_one_alone():
    with Served() as served, echoing() as port:
        mine = served.begin(portNumber=str(port))
        again = served.entry(mine.session, served.gateway.resume(mine.session))
        assert got(served, mine.url, opening_with(mine.token)) == []

        async def enter():
            async with aiohttp.ClientSession() as client, client.ws_connect(again.url) as channel:
                await channel.send_str(opening_with(again.token))
                return (await channel.receive(timeout=60)).type

        assert asyncio.run(enter()) == aiohttp.WSMsgType.BINARY
        assert got(served, again.url, opening_with(again.token)) == []


def test_a_session_that_was_ended_cannot_be_resumed():
    with Served() as served:
        mine = served.begin(portNumber="1")
        served.gateway.terminate(mine.session)
        served.gateway.terminate(mine.session)
        assert served.gateway.resume(mine.session) is None
        assert got(served, mine.url, opening_with(mine.token)) == []


UPGRADE = f"""GET {PATH}nobody HTTP/1.1
Host: here
Upgrade: websocket
Connection: Upgrade
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
Sec-WebSocket-Version: 13

""".replace("\n", "\r\n").encode()


@pytest.mark.parametrize("is_reset", [0, 1], ids=["closed", "reset"])
def test_a_client_that_has_gone_before_it_is_let_in_is_no_fault(is_reset, caplog):
    with Served() as served, socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as client:
            connection, _ = listening.accept()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_reset, 0))
        with connection:
            served.gateway.adopt(connection, UPGRADE)
    assert not caplog.records


def test_a_channel_that_is_open_when_the_gateway_closes_ends_with_it():
    gateway = Gateway(Ssm(), Random(1))
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        client = socket.create_connection(listening.getsockname(), timeout=60)
        connection, _ = listening.accept()
        with client, connection:
            serving = pool.submit(gateway.adopt, connection, UPGRADE)
            assert b" 101 " in client.recv(4096)
            gateway.close()
            assert serving.result(timeout=60) is None


def test_a_gateway_that_nobody_used_runs_no_thread_and_closes():
    before = threading.active_count()
    gateway = Gateway(Ssm(), Random(1))
    assert threading.active_count() == before
    gateway.close()
    gateway.close()


def test_sessions_have_names_and_tokens_of_their_own_and_end_with_the_gateway():
    gateway, work = Gateway(Ssm(), Random(1)), work_of("AWS-StartPortForwardingSession", {"portNumber": ["1"]})
    sessions = [gateway.start(Here(), work) for _ in range(3)]
    assert all(re.fullmatch(r"raysm-[0-9a-f]{17}", session) for session, _ in sessions)
    assert len({*dict(sessions), *dict(sessions).values()}) == 6
    gateway.close()
    # A new one would begin anew: of the old sessions it knows nothing.
    assert [gateway.resume(session) for session, _ in sessions] == [None] * 3
    gateway.close()

"""A tunnel as its user has it."""

import asyncio
import socket

import pytest

from raysm.client.tunnel.tunnel import Tunnel
from raysm.errors import InvalidRequest, ServiceError
from tests.client.tunnel.test_listener import Echo


class Way:
    """A way to a port that echoes."""

    def __init__(self, error=None):
        self.error = error
        self.calls = []

    async def open(self):
        self.calls.append("open")
        if self.error is not None:
            raise self.error

    async def connect(self):
        self.calls.append("connect")
        return Echo()

    async def close(self):
        self.calls.append("close")


def test_a_tunnel_says_its_address_and_leads_there():
    way = Way()
    with Tunnel(lambda: way) as tunnel:
        assert tunnel.address == f"127.0.0.1:{tunnel.port}"
        assert repr(tunnel) == f"<Tunnel {tunnel.address}>"
        with socket.create_connection(("127.0.0.1", tunnel.port)) as connection:
            connection.sendall(b"abc")
            assert connection.recv(3) == b"abc"
    assert way.calls == ["open", "connect", "close"]


def test_closing_a_tunnel_with_open_connections_says_nothing(capfd):
    with Tunnel(Way) as tunnel, socket.create_connection(("127.0.0.1", tunnel.port)) as connection:
        connection.sendall(b"abc")
        assert connection.recv(3) == b"abc"
        tunnel.close()
        assert connection.recv(1) == b""
    assert capfd.readouterr() == ("", "")


def test_a_tunnel_can_be_closed_twice_and_frees_its_port():
    tunnel = Tunnel(Way)
    tunnel.close()
    tunnel.close()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", tunnel.port))


def test_without_a_way_there_is_no_tunnel():
    with pytest.raises(ServiceError, match="nobody there"):
        Tunnel(lambda: Way(ServiceError("nobody there")))


def test_a_taken_port_is_said_before_a_session_is_begun():
    way = Way()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(InvalidRequest, match="cannot be listened on"):
            Tunnel(lambda: way, local_port=taken.getsockname()[1])
    assert way.calls == []


def test_a_tunnel_is_used_from_any_loop():
    async def use():
        with Tunnel(Way) as tunnel:
            reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()

    asyncio.run(use())

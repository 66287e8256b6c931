"""A tunnel's local end: whose connections it takes."""

import contextlib
import socket

from raysm.core.client.tunnel import Tunnel
from tests.support.strangers import needs_two_users, run_by_another_user

CONNECT = """
(port,) = values
with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
    try:
        print(repr(connection.recv(1)), flush=True)
    except ConnectionResetError:
        print(repr(b""), flush=True)
"""


@needs_two_users
def test_connections_of_another_user_are_closed_and_those_of_this_user_carried():
    with contextlib.ExitStack() as stack:
        ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
        tunnel = stack.enter_context(Tunnel(lambda: ours))
        assert run_by_another_user(CONNECT, tunnel.port) == "b''"
        with socket.create_connection(("127.0.0.1", tunnel.port), timeout=60) as visitor:
            visitor.sendall(b"hello")
            assert theirs.recv(5) == b"hello"

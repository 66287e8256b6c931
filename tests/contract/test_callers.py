"""A listener on loopback keeps connections of this user, and only as many as it has room for."""

import errno
import resource
import socket

import pytest

from raysm.contract.callers import OwnListener
from tests.support.strangers import needs_two_users, running_as_another_user

CONNECT = """
port, count = values
held = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
print(len(held), flush=True)
sys.stdin.read()
assert all(connection.recv(3) == b"no" for connection in held)
"""


@needs_two_users
def test_connections_of_another_user_are_closed():
    with OwnListener(lambda: True, b"no") as listener, running_as_another_user(CONNECT, listener.port, 3) as said:
        assert said == "3"
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                listener.accept()


def test_a_connection_of_this_user_is_kept_while_there_is_room():
    has_room = True
    with OwnListener(lambda: has_room, b"no") as listener:
        with socket.create_connection(("127.0.0.1", listener.port)) as connection, listener.accept()[0] as accepted:
            accepted.sendall(b"hello")
            assert connection.recv(5) == b"hello"
        has_room = False
        with socket.create_connection(("127.0.0.1", listener.port)) as connection:
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert connection.recv(1) == b""


def test_a_process_without_a_file_left_refuses_quietly():
    with OwnListener(lambda: True, b"no") as listener, socket.create_connection(("127.0.0.1", listener.port)):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            with pytest.raises(BlockingIOError) as refused:
                listener.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refused.value.__cause__.errno == errno.EMFILE

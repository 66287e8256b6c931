"""A listener on loopback keeps connections of this user, and only as many as it has room for."""

import errno
import os
import resource
import socket
import struct
import subprocess
import sys

import pytest

from raysm.core.protocol.callers import LOOPBACK, OwnListener, refuse, user_of
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
    with (
        OwnListener(lambda: True, b"no") as listener,
        running_as_another_user(CONNECT, listener.port, 3) as said,
    ):
        assert said == "3"
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                listener.accept()


def test_a_connection_of_this_user_is_kept_while_there_is_room():
    has_room = True
    with OwnListener(lambda: has_room, b"no") as listener:
        with (
            socket.create_connection(("127.0.0.1", listener.port)) as connection,
            listener.accept()[0] as accepted,
        ):
            accepted.sendall(b"hello")
            assert connection.recv(5) == b"hello"
        has_room = False
        with socket.create_connection(("127.0.0.1", listener.port)) as connection:
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert connection.recv(1) == b""


def test_a_process_without_a_file_left_refuses_quietly():
    with (
        OwnListener(lambda: True, b"no") as listener,
        socket.create_connection(("127.0.0.1", listener.port)),
    ):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        try:
            with pytest.raises(BlockingIOError) as refused:
                listener.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refused.value.__cause__.errno == errno.EMFILE


linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="asks Linux for the user of a socket"
)


def check_users(family, address):
    """Check that the user of a connection is known while both ends are open, and only then."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.socket(family) as client:
        port = server.getsockname()[1]
        client.connect((address, port))
        with server.accept()[0]:
            own = client.getsockname()[1]
            assert user_of(own, port) == os.getuid()
            assert user_of(own, own) is None
            client.close()
            # The kernel now says that it is root's.
            assert user_of(own, port) is None


WITHOUT_NETLINK = """
import socket
del socket.AF_NETLINK
from tests.core.protocol.test_callers import check_users
check_users(socket.{}, {!r})
"""


@linux_only
@pytest.mark.parametrize("has_netlink", [True, False])
@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, LOOPBACK), (socket.AF_INET6, f"::ffff:{LOOPBACK}")],
    ids=["IPv4", "IPv6"],
)
def test_the_user_of_a_connection_is_known_with_and_without_netlink(family, address, has_netlink):
    try:
        socket.socket(family).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    if has_netlink:
        check_users(family, address)
    else:
        subprocess.run(
            [sys.executable, "-c", WITHOUT_NETLINK.format(family.name, address)], check=True
        )


@linux_only
def test_another_address_of_this_machine_is_refused_though_a_port_of_the_same_number_is_ours():
    with OwnListener(lambda: True, b"no") as listener, socket.socket() as other:
        with socket.create_connection((LOOPBACK, listener.port)) as own, listener.accept()[0]:
            other.bind(("127.0.0.2", own.getsockname()[1]))
            other.connect((LOOPBACK, listener.port))
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert other.recv(2) == b"no"


def test_a_refusal_of_a_client_that_is_gone_is_quiet():
    with socket.create_server((LOOPBACK, 0)) as server:
        client = socket.create_connection(server.getsockname())
        with server.accept()[0] as connection:
            # Closes with a reset.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            refuse(connection, b"no")
            refuse(connection, b"no")

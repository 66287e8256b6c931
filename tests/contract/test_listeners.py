"""Whose process listens at a port of this machine."""

import os
import socket

import pytest

from raysm.contract.listeners import check_listener, connect_to_own, has_own_listener, is_of_this_machine
from raysm.errors import ForeignListener
from tests.support.another_user import needs_two_users, thief

linux_only = pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="needs Linux's list of sockets")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@linux_only
@pytest.mark.parametrize(
    ("family", "host", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_process_of_this_user_is_found_by_each_address_that_it_serves(family, host, asked):
    try:
        server = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        port = server.getsockname()[1]
        assert check_listener(asked, port) == {os.fstat(server.fileno()).st_ino}
        assert has_own_listener(asked, port)
        with connect_to_own(asked, port, 60) as connection:
            assert connection.getpeername()[1] == port
    assert not has_own_listener(asked, port)


def test_nothing_that_listens_refuses_a_connection():
    with pytest.raises(ConnectionRefusedError):
        connect_to_own("127.0.0.1", free_port(), 60)


def test_an_address_of_another_machine_is_not_asked_for_here():
    assert is_of_this_machine("127.0.0.1")
    assert is_of_this_machine("127.3.2.1")
    assert not is_of_this_machine("192.0.2.77")
    assert has_own_listener("192.0.2.77", 1)


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
        with pytest.raises(ForeignListener, match=rf"another user \(uid 65534\) listens at 127.0.0.1, port {port}"):
            connect_to_own("127.0.0.1", port, 60)
        with pytest.raises(ForeignListener):
            has_own_listener("127.0.0.1", port)
        assert other.end() == ""

"""Who asks, and who is turned away."""

import os
import socket
import subprocess
import sys

import pytest

from raysm.local.server.http_server import user_of

WAYS = {
    "plainly": ("AF_INET", "127.0.0.1", "127.0.0.1"),
    "from another address of loopback": ("AF_INET", "127.0.0.2", "127.0.0.1"),
    "by way of IPv6": ("AF_INET6", "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
}


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.getuid() != 0, reason="needs Linux, and root to be two")
@pytest.mark.parametrize("way", WAYS)
def test_it_answers_no_other_user_of_this_machine(server, way):
    # Whatever is imported late must be so before: the other user may not be able to read this Python.
    code = (
        "import os, socket, sys; ''.encode('idna'); os.setgid(65534); os.setuid(65534)\n"
        "with socket.socket(getattr(socket, sys.argv[2])) as connection:\n"
        "    connection.bind((sys.argv[3], 0)); connection.connect((sys.argv[4], int(sys.argv[1])))\n"
        "    connection.sendall(b'GET /raysm/status HTTP/1.0\\r\\nHost: 127.0.0.1\\r\\n\\r\\n')\n"
        "    with connection.makefile() as answer: print(answer.read())"
    )
    asked = [sys.executable, "-c", code, str(server.record.port), *WAYS[way]]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    assert " 403 " in done.stdout, done
    assert "answers only its own user" in done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's table of connections")
def test_the_user_of_a_connection_that_is_being_closed_is_unknown(server):
    with socket.create_connection(("127.0.0.1", server.record.port)) as connection:
        port = connection.getsockname()[1]
        assert user_of(port, server.record.port) == os.getuid()
        connection.shutdown(socket.SHUT_WR)
        assert user_of(port, server.record.port) is None


def test_a_client_of_this_user_is_found_on_each_of_many_connections(server):
    assert [server.ask("GET", "/raysm/status")[0] for _ in range(100)] == [200] * 100

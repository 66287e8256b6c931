"""A port whose server is started when the first caller comes."""

import http.client
import socket
import threading

import pytest

from raysm.bootstrap.doorbell import await_caller
from raysm.contract.events import DASHBOARD_NOT_YET


@pytest.fixture
def rung():
    """A port that is kept, and an event that is set once somebody has called."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    event = threading.Event()

    def keep():
        await_caller("127.0.0.1", port)
        event.set()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    return port, event


def call(port):
    """Return a connection, as soon as somebody listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            continue


def test_nobody_is_there_until_somebody_calls_and_then_the_port_is_free(rung):
    port, event = rung
    assert not event.wait(0.2)
    call(port).close()
    assert event.wait(60)
    socket.create_server(("127.0.0.1", port)).close()


def test_a_browser_is_told_to_come_again_and_does_so_by_itself(rung):
    port, event = rung
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.sock = call(port)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == DASHBOARD_NOT_YET
    assert int(answer.headers["Refresh"]) > 0
    assert b"in some seconds" in answer.read()
    connection.close()
    assert event.wait(60)


def test_a_caller_that_says_nothing_has_called_too(rung):
    port, event = rung
    with call(port):
        assert event.wait(60)


def test_a_port_that_is_taken_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await_caller("127.0.0.1", taken.getsockname()[1])

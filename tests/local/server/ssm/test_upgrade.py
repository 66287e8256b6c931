"""Which requests ask for a data channel, and how their connection is handed over."""

import socket

import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from raysm.local.server.ssm.gateway import PATH
from raysm.local.server.ssm.upgrade import HandedOver, asks_for_channel, serve_channel


def request(path=f"{PATH}s-1", method="GET", upgrade="websocket", **environ):
    headers = {"Upgrade": upgrade} if upgrade else {}
    return Request({**EnvironBuilder(path=path, method=method, headers=headers).get_environ(), **environ})


@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket"])
def test_a_websocket_below_the_path_asks_for_one(upgrade):
    assert asks_for_channel(request(upgrade=upgrade))


@pytest.mark.parametrize(
    "other", [{"path": "/v1/other"}, {"method": "POST"}, {"upgrade": None}, {"upgrade": "h2c"}, {"path": "/"}]
)
def test_nothing_else_does(other):
    assert not asks_for_channel(request(**other))


class Adopting:
    """A gateway that keeps what it is given."""

    def __init__(self, error=None):
        self.error, self.heads = error, []

    def adopt(self, connection, head):
        self.heads.append(head)
        if self.error is not None:
            raise self.error
        connection.sendall(b"served")


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    yield ours, theirs
    ours.close()
    theirs.close()


def received(connection):
    data = b""
    while part := connection.recv(100):
        data += part
    return data


def test_the_request_is_told_anew_and_the_other_end_hears_the_end_at_once(ends):
    ours, theirs = ends
    gateway = Adopting()
    raw = f"{PATH}s-1?role=publish_subscribe"
    with pytest.raises(HandedOver, match="the data channel is closed"):
        serve_channel(request(**{"werkzeug.socket": ours, "RAW_URI": raw, "HTTP_X_NAME": "välue"}), gateway)
    (head,) = gateway.heads
    first, *headers = head.decode("latin-1").split("\r\n")
    assert first == f"GET {raw} HTTP/1.1"
    assert {"Upgrade: websocket", "X-Name: välue"} <= set(headers)
    assert headers[-2:] == ["", ""]
    # Though this end is still open here, as werkzeug's is.
    assert received(theirs) == b"served"


def test_a_gateway_that_fails_closes_the_connection_too(ends):
    ours, theirs = ends
    with pytest.raises(RuntimeError, match="broken"):
        serve_channel(request(**{"werkzeug.socket": ours, "RAW_URI": f"{PATH}s-1"}), Adopting(RuntimeError("broken")))
    assert received(theirs) == b""


def test_a_connection_that_is_gone_meanwhile_is_no_error_of_its_own(ends):
    ours, _ = ends
    ours.close()
    with pytest.raises(HandedOver):
        serve_channel(request(**{"werkzeug.socket": ours, "RAW_URI": f"{PATH}s-1"}), Gone())


class Gone:
    """A gateway that finds nobody."""

    def adopt(self, connection, head):
        pass

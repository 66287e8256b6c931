"""From a request of the server that all services share to a data channel: what flows in is a WSGI environment."""

import contextlib
import socket
from typing import NoReturn

from werkzeug.wrappers import Request

from raysm.local.server.ssm.gateway import PATH, Gateway

__all__ = ["HandedOver", "asks_for_channel", "serve_channel"]


class HandedOver(ConnectionResetError):
    """A connection was another protocol's, and is closed: werkzeug leaves alone what ends with such an error."""


def asks_for_channel(request: Request) -> bool:
    """Whether a request asks for the WebSocket of a data channel."""
    return (
        request.method == "GET"
        and request.path.startswith(PATH)
        and request.headers.get("Upgrade", "").lower() == "websocket"
    )


def serve_channel(request: Request, gateway: Gateway) -> NoReturn:
    """Hand the connection over, and wait until it is closed.

    Raises:
        HandedOver: Always, in the end: nothing is left to be answered.
    """
    connection = request.environ["werkzeug.socket"]
    try:
        gateway.adopt(connection, _head(request))
    finally:
        # Two descriptors lead to it: the other end is told only when both are closed, and this one may be a while.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    raise HandedOver("the data channel is closed")


def _head(request: Request) -> bytes:
    lines = [f"GET {request.environ['RAW_URI']} HTTP/1.1"]
    # As latin-1, the encoding in which WSGI hands headers over.
    lines += [f"{name}: {value}" for name, value in request.headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

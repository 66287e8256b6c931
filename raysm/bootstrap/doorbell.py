"""A port whose server is started when the first caller comes: a place flows in, and the moment of the call flows out.

The dashboard costs 5 s of a core and most short jobs end before anybody looks at it. So its port is kept by a listener
that costs nothing, and goes out of the way when somebody calls. systemd hands its listening socket over to the server
that it starts (https://www.freedesktop.org/software/systemd/man/latest/systemd.socket.html); Ray's dashboard can only
open one of its own, so the caller is told to come again.
"""

import contextlib
import socket

from raysm.contract.events import DASHBOARD_NOT_YET

__all__ = ["COME_AGAIN", "await_caller"]

TEXT = b"Ray's dashboard is being started: it is here in some seconds, and your browser asks again by itself.\n"

# Refresh is not of the standard, but all browsers follow it:
# https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Refresh
COME_AGAIN = (
    b"HTTP/1.1 %d Service Unavailable\r\nRetry-After: 3\r\nRefresh: 3\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (DASHBOARD_NOT_YET, len(TEXT), TEXT)
)

PATIENCE_S = 1.0
"""For a caller that says nothing: it has called all the same."""

MOST_BYTES = 1 << 16


def await_caller(host: str, port: int) -> None:
    """Return when somebody has connected to a port, which is free again.

    The caller is answered without being asked who it is: it learns nothing, and what it starts would be started soon
    anyway.

    Args:
        host: The address to listen on; empty is every one.
        port: Where.

    Raises:
        OSError: The port is taken.
    """
    with socket.create_server((host, port)) as server:
        caller, _ = server.accept()
    with caller:
        caller.settimeout(PATIENCE_S)
        # Whoever has gone away already has called, too.
        with contextlib.suppress(OSError):
            # Read, because closing with something unread would reset the connection, and the answer be lost.
            caller.recv(MOST_BYTES)
            caller.sendall(COME_AGAIN)

"""The HTTP server of the embedded SageMaker: it listens on 127.0.0.1 and keeps connections of its own user only."""

import contextlib
import resource
import socket
from typing import TYPE_CHECKING

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from raysm.local.server.moto_internals import request_handler
from raysm.local.server.peers import is_from_our_user

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = ["HttpServer"]

HEADERS_S = 20.0
"""How long a client may pause while it sends the head of a request."""
MAX_FILES = 65536
"""Soft limit of open files that the server asks for: a job and each client that waits for its end hold some."""

REFUSAL = b'{"__type": "AccessDeniedException", "message": "the embedded SageMaker answers only its own user"}'
REFUSED = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/x-amz-json-1.1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(REFUSAL), REFUSAL)
)


class _Handler(request_handler()):  # type: ignore[misc]
    protocol_version = "HTTP/1.1"
    timeout = HEADERS_S

    def parse_request(self) -> bool:
        """Read the head of a request; what follows may take as long as it takes."""
        is_good: bool = super().parse_request()
        self.connection.settimeout(None)
        return is_good

    def log(self, type: str, message: str, *args: object) -> None:
        """Log no request."""


class HttpServer(ThreadedWSGIServer):
    """Answers each request in a thread of its own, because a request may wait until a job ends.

    Connections of other users of this machine are refused when they are accepted, before they cost a thread: otherwise
    a few silent ones would use up the files that this process may open.
    """

    def __init__(self, port: int, app: "WSGIApplication", handler: type[WSGIRequestHandler] = _Handler) -> None:
        """Listen on 127.0.0.1; port 0 is any that is free."""
        super().__init__("127.0.0.1", port, app, handler)
        _allow_files(MAX_FILES)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Keep a connection of this user or of root; refuse others."""
        assert isinstance(request, socket.socket)
        assert isinstance(client_address, tuple)
        if is_from_our_user(client_address, self.server_port):
            return True
        # The client may have gone, and this thread must not wait for one that does not read.
        with contextlib.suppress(OSError):
            request.settimeout(0)
            request.send(REFUSED)
        return False


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))

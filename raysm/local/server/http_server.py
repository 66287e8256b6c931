"""The HTTP servers, on TCP and on a Unix socket: a thread for each connection, and only connections of this user."""

import contextlib
import resource
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from raysm.core.protocol import own_socket
from raysm.core.protocol.callers import LOOPBACK, is_from_our_user, refusal, refuse

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

HEADERS_S = 20.0
QUEUE = 1024
"""Connections that wait until they are accepted: on a Unix socket a client cannot wait for room in
the queue."""
MAX_FILES = 65536
"""Soft limit of open files: each job and each waiting client needs some."""

REFUSAL = b'{"__type": "AccessDeniedException", "message": "the embedded SageMaker answers only its own user"}'
REFUSED = refusal(REFUSAL, "application/x-amz-json-1.1")


class _Handler(MotoRequestHandler):  # type: ignore[misc]
    protocol_version = "HTTP/1.1"
    timeout = HEADERS_S

    def parse_request(self) -> bool:
        is_good: bool = super().parse_request()
        self.connection.settimeout(None)
        return is_good

    def log(self, type: str, message: str, *args: object) -> None:
        """Log no request."""


class HttpServer(ThreadedWSGIServer):
    """Answers each request in its own thread, because a request may wait until a job ends.

    Connections of other users are refused at once: silent ones would use up the open files.
    """

    def __init__(
        self, port: int, app: "WSGIApplication", handler: type[WSGIRequestHandler] = _Handler
    ) -> None:
        super().__init__(LOOPBACK, port, app, handler)
        _allow_files(MAX_FILES)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Keep a connection of this user or of root; refuse others."""
        assert isinstance(request, socket.socket)
        if self.is_trusted(request, client_address):
            return True
        refuse(request, REFUSED)
        return False

    def is_trusted(self, connection: socket.socket, client: object) -> bool:
        assert isinstance(client, tuple)
        return is_from_our_user(client, self.server_port)


class UnixHttpServer(HttpServer):
    """The same on a Unix socket, which raysm's own clients use: there they can check who listens."""

    def __init__(
        self,
        listener: socket.socket,
        app: "WSGIApplication",
        handler: type[WSGIRequestHandler] = _Handler,
    ) -> None:
        # werkzeug makes a copy of the socket. With a path it would make one, and exit if that
        # fails.
        ThreadedWSGIServer.__init__(self, "unix://", 0, app, handler, fd=listener.fileno())
        _allow_files(MAX_FILES)

    def is_trusted(self, connection: socket.socket, client: object) -> bool:
        return own_socket.is_trusted(own_socket.peer_user(connection))


@contextlib.contextmanager
def unix_listener(folder: Path, name: str) -> Iterator[tuple[socket.socket, Path]]:
    """Yield a listening Unix socket to which only this user may connect, and its path.

    The path is in ``folder``, or in a temporary folder if that has a path of more than about 100
    bytes, or lies in a file system without sockets.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = folder / name
        try:
            listener.bind(str(path))
        except OSError:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raysm-")), name)
            listener.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        # Before it listens, so that no other user is in its queue.
        path.chmod(0o600)
        listener.listen(QUEUE)
        yield listener, path


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))

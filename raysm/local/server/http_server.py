"""The HTTP servers, on TCP and on a Unix socket: a thread for each connection, and only connections of this user."""

import contextlib
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from raysm.contract import own_socket
from raysm.contract.connections import find_socket

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The second one has IPv6 sockets that speak IPv4."""
LOOPBACK = "127.0.0.1"
ESTABLISHED = "01"
TABLE_READS = 3
"""A read may miss a row, because the kernel returns a long table in pieces."""
HEADERS_S = 20.0
QUEUE = 1024
"""Connections that wait until they are accepted: on a Unix socket a client cannot wait for room in the queue."""
MAX_FILES = 65536
"""Soft limit of open files: each job and each waiting client needs some."""

REFUSAL = b'{"__type": "AccessDeniedException", "message": "the embedded SageMaker answers only its own user"}'
REFUSED = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/x-amz-json-1.1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(REFUSAL), REFUSAL)
)


def is_from_our_user(client: tuple[str, int], server_port: int) -> bool:
    """Return whether a connection on ``server_port`` comes from this user or root; on systems other than Linux all do.

    A client whose user is unknown has closed its socket, or has another address than 127.0.0.1.
    """
    if not sys.platform.startswith("linux"):
        return True
    address, port = client
    return address == LOOPBACK and user_of(port, server_port) in (0, os.getuid())


def user_of(port: int, server_port: int) -> int | None:
    """Return the user of the socket on 127.0.0.1 with ``port`` that is connected to ``server_port``.

    None if there is none, or if it is being closed: the kernel then reports user 0.
    """
    found = find_socket((LOOPBACK, port), (LOOPBACK, server_port))
    if found is not None and found[0] == int(ESTABLISHED):
        return found[1]
    for _ in range(TABLE_READS):
        for table in TABLES:
            user = _user_in(table, port, server_port)
            if user is not None:
                return user
    return None


def _user_in(table: Path, port: int, server_port: int) -> int | None:
    # Each 32 bits of an address are in the machine's byte order.
    plain = f"{int.from_bytes(socket.inet_aton(LOOPBACK), sys.byteorder):08X}"
    mapped = f"{0:016X}{int.from_bytes(bytes.fromhex('0000FFFF'), sys.byteorder):08X}{plain}"
    rows = [(f"{address}:{port:04X}", f"{address}:{server_port:04X}", ESTABLISHED) for address in (plain, mapped)]
    try:
        lines = table.read_text().splitlines()
    except OSError:  # a kernel without IPv6 has no second table
        return None
    for line in lines:
        fields = line.split()
        if (fields[1], fields[2], fields[3]) in rows:
            return int(fields[7])
    return None


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

    def __init__(self, port: int, app: "WSGIApplication", handler: type[WSGIRequestHandler] = _Handler) -> None:
        super().__init__("127.0.0.1", port, app, handler)
        _allow_files(MAX_FILES)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Keep a connection of this user or of root; refuse others."""
        assert isinstance(request, socket.socket)
        if self.is_trusted(request, client_address):
            return True
        # Without waiting for a client that does not read.
        with contextlib.suppress(OSError):
            request.settimeout(0)
            request.send(REFUSED)
        return False

    def is_trusted(self, connection: socket.socket, client: object) -> bool:
        assert isinstance(client, tuple)
        return is_from_our_user(client, self.server_port)


class UnixHttpServer(HttpServer):
    """The same on a Unix socket, which raysm's own clients use: there they can check who listens."""

    def __init__(
        self, listener: socket.socket, app: "WSGIApplication", handler: type[WSGIRequestHandler] = _Handler
    ) -> None:
        # werkzeug makes a copy of the socket. With a path it would make one, and exit if that fails.
        ThreadedWSGIServer.__init__(self, "unix://", 0, app, handler, fd=listener.fileno())
        _allow_files(MAX_FILES)

    def is_trusted(self, connection: socket.socket, client: object) -> bool:
        return own_socket.is_trusted(own_socket.peer_user(connection))


@contextlib.contextmanager
def unix_listener(folder: Path, name: str) -> Iterator[tuple[socket.socket, Path]]:
    """Yield a listening Unix socket to which only this user may connect, and its path.

    The path is in ``folder``, or in a temporary folder if that has a path of more than about 100 bytes, or lies in a
    file system without sockets.
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

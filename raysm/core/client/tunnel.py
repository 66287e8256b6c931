"""A tunnel from a port of this machine, and the access to instances that makes one."""

import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Callable
from types import TracebackType

from raysm.core.protocol.callers import is_from_our_user
from raysm.core.protocol.socket_relay import relay
from raysm.errors import InvalidRequest, RaysmError

_log = logging.getLogger("raysm")


# Only IPv4: some machines have no ::1.
LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 400
"""Connections of one tunnel at a time, each of which takes two of the process's open files,
commonly 1,024."""


class Tunnel:
    """A listener on loopback that passes each connection on to an instance.

    It is a context manager, and open from the start.

    The listener stays while what carries its connections is started again, so that its port is
    never free for others.

    Attributes:
        port: The local port.
        address: ``127.0.0.1:PORT``.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        *,
        local_port: int = 0,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        try:
            self._server = _Server((LOOPBACK, local_port), _Handler)
        except OSError as error:
            raise InvalidRequest(
                f"{LOOPBACK}:{local_port} cannot be listened on: {error.strerror}; "
                "choose another port, or 0 for any"
            ) from error
        self._server.connect = connect
        self._on_close = on_close
        self._is_closed = False
        self.port: int = self._server.server_address[1]
        self.address = f"{LOOPBACK}:{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="tunnel", daemon=True
        ).start()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._server.end_connections()
        self._on_close()

    def __enter__(self) -> "Tunnel":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tunnel {self.address}>"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    # A browser opens many connections at once.
    request_queue_size = 128
    connect: Callable[[], socket.socket]

    def __init__(
        self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler]
    ) -> None:
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Keep a connection of this user or of root.

        Silent ones of others would use up this process's open files.
        """
        assert isinstance(client_address, tuple)
        return (
            is_from_our_user(client_address, self.server_address[1])
            and len(self._open) < 2 * MAX_CONNECTIONS
        )

    def carry(self, visitor: socket.socket) -> None:
        try:
            there = self.connect()
        except (OSError, RaysmError) as error:
            _log.info("the tunnel at %s:%s: %s", *self.server_address[:2], error)
            return
        with self._lock:
            self._open |= {visitor, there}
        try:
            relay(visitor, there)
        finally:
            with self._lock:
                self._open -= {visitor, there}

    def end_connections(self) -> None:
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: object) -> None:
        # The relay has closed it.
        self.close_request(request)  # type: ignore[arg-type]


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.carry(self.request)

"""HTTP, also botocore's, over connections whose other end was checked before anything is sent.

Any user of this machine can listen at a port that the embedded SageMaker had before it ended, and
would answer in its
place: with a result that is a pickle of his, for example.
"""

import http.client
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from raysm.errors import ForeignListener

Connect: TypeAlias = Callable[[float | None], socket.socket]
"""Given a timeout in seconds, returns a connection to a checked process, or raises OSError, as
ForeignListener is."""

ADDRESS = "http://localhost"
"""The address in requests over a Unix socket. Nothing connects to it."""


class CheckedConnection(http.client.HTTPConnection):
    def __init__(self, connect: Connect, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._connect = connect

    def connect(self) -> None:
        self.sock = self._connect(self.timeout)
        self.sock.settimeout(self.timeout)


def send_through(client: Any, connect: Connect) -> None:
    """Make a boto3 client send all requests over connections from ``connect``, with its timeouts and retries."""
    config = client.meta.config
    session = _make_session(
        connect, (config.connect_timeout, config.read_timeout), config.max_pool_connections
    )
    client.meta.events.register("before-send", lambda request, **_: session.send(request))


def _make_session(connect: Connect, timeout: tuple[float, float], max_connections: int) -> Any:
    from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool
    from botocore.httpsession import URLLib3Session
    from urllib3.exceptions import NewConnectionError

    class Connection(AWSHTTPConnection):  # type: ignore[misc]
        def connect(self) -> None:
            try:
                self.sock = connect(self.timeout)
            except ForeignListener:
                raise
            except OSError as error:
                # botocore retries this error, and LocalConnection starts a server.
                raise NewConnectionError(self, str(error)) from error
            self.sock.settimeout(self.timeout)

    class Pool(AWSHTTPConnectionPool):  # type: ignore[misc]
        ConnectionCls = Connection

    class Session(URLLib3Session):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(timeout=timeout, max_pool_connections=max_connections)
            # Without a class for https, so that no request takes another way.
            self._manager.pool_classes_by_scheme = {"http": Pool}

        def send(self, request: Any) -> Any:
            try:
                return super().send(request)
            except Exception as error:
                foreign = _foreign_in(error)
                if foreign is None:
                    raise
                # botocore has wrapped it in an error that hides its message, and that would be
                # retried.
                raise foreign from None

    return Session()


def _foreign_in(error: BaseException | None) -> ForeignListener | None:
    while error is not None and not isinstance(error, ForeignListener):
        error = error.__context__
    return error

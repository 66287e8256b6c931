"""What the client needs from a kind of target.

These are clients of boto3, the region, the bucket, and how to wait for a job.

A further target is its class in ``raysm.core.request.targets``, a ``Connection`` and one line in
``CONNECTIONS``.
"""

import abc
import http.client
import pkgutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from raysm import __version__
from raysm.core.protocol.home import Clock
from raysm.core.request import JobRequest, Target
from raysm.errors import ForeignListener, InvalidRequest

CONNECTIONS = {
    "aws": "raysm.core.client.targets.aws:AWSConnection",
    "local": "raysm.core.client.targets.local:LocalConnection",
}
"""The class of each kind of target, ``module:Class``, imported on first use."""

SET_REGION = "give --region (AWS(region=…) in Python), or run aws configure set region REGION"
MAX_LOG_PAUSE_S = 20.0
"""Longest pause between two looks at the log of a job with many instances."""

Clients: TypeAlias = Callable[[str], Any]

Connect: TypeAlias = Callable[[float | None], socket.socket]
"""Given a timeout in seconds, returns a connection to a checked process, or raises OSError, as
ForeignListener is."""

ADDRESS = "http://localhost"
"""The address in requests over a Unix socket. Nothing connects to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Polling:
    first_s: float
    most_s: float
    growth: float = 1.5
    patience_s: float = 300.0
    """Seconds for which the service may be unreachable before waiting for a job fails."""
    late_s: float = 0.0
    """Seconds that the last lines of a job that has ended may need to reach the log service."""
    stream_s: float = 0.0
    """Seconds to leave for each stream of a log between two looks at it."""
    quiet_s: float = 5.0
    """Seconds without a line after which the user is told what a followed job waits for."""

    def between_looks(self, pause_s: float, streams: int) -> float:
        """Return the seconds to leave between two looks at a log with so many streams."""
        # Each stream takes a call, and CloudWatch limits the calls of the whole account.
        return max(pause_s, min(streams * self.stream_s, MAX_LOG_PAUSE_S))

    def pauses(self) -> Iterator[float]:
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.most_s, pause * self.growth)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    name: str
    is_named: bool = False
    """True if the user named it: raysm then does not create it."""
    owner: str | None = None
    """The account that has to own it; None is any."""


class Connection(abc.ABC):
    """One target as the client uses it.

    Without ``repeats`` botocore sends each call of SageMaker once: a grid has its own retries.
    ``profile`` is the profile of the AWS configuration; empty is the default.
    """

    polling: Polling
    repeats: bool = True
    profile: str = ""
    remedies: Mapping[str, str] = {}
    """Remedies by the beginning of an error's code, where they are not those of an account on
    AWS."""

    @property
    @abc.abstractmethod
    def home(self) -> Path:
        """The folder on this machine for everything that belongs to jobs."""

    @property
    def clock(self) -> Clock:
        """The clock by which the service dates its answers."""
        return Clock()

    @property
    def lists_quotas(self) -> bool:
        return True

    @property
    def lists_prices(self) -> bool:
        """True if the target has prices of its own; else the public prices of AWS apply."""
        return False

    @abc.abstractmethod
    def region(self, clients: Clients) -> str: ...
    def other_regions(self) -> Sequence[str]:
        """Return the other regions in which a job is looked for by its name alone."""
        return ()

    @abc.abstractmethod
    def bucket(self, region: Callable[[], str], account: Callable[[], str]) -> Bucket:
        """Return the bucket; region and account are asked for only if its name contains them."""

    @abc.abstractmethod
    def data_root(self, bucket_root: str) -> str:
        """Return the prefix for results, given that of payloads."""

    @abc.abstractmethod
    def resolve(self, request: JobRequest, region: Callable[[], str]) -> tuple[Target, str]:
        """Return the target with everything decided that depends on the job.

        The second value is the image that was chosen, if any.
        """

    @abc.abstractmethod
    def make_client(self, name: str) -> Any: ...
    def reconnect(self, error: Exception, *, is_followed: bool = False) -> bool:
        """Return True if the call that raised ``error`` should be repeated by a new client."""
        return False

    def wait_for_end(self, job: str, pause_s: float, most_s: float) -> None:
        """Wait until a job may have ended, at most ``most_s``; ``pause_s`` if that is unknown."""
        time.sleep(min(pause_s, most_s))

    def wait_for_change(self, job: str, seen: int, pause_s: float, most_s: float) -> int:
        """Wait until a job may have written another line, at most ``most_s``.

        If the target cannot tell, wait for ``pause_s``.

        ``seen`` is the result of the previous wait, at first 0; the result is for the next one.
        """
        time.sleep(min(pause_s, most_s))
        return seen


def connection_to(target: Any) -> Connection:
    # The class itself has a kind too, but no fields.
    path = None if isinstance(target, type) else CONNECTIONS.get(str(getattr(target, "kind", "")))
    if path is None:
        raise InvalidRequest(f"on must be raysm.AWS(role=…) or raysm.Local(), got {target!r}")
    connection: Connection = pkgutil.resolve_name(path)(target)
    return connection


def client_options(*, repeats: bool = True, **more: Any) -> Any:
    from botocore.config import Config

    # botocore's default mode, legacy, retries fewer errors.
    retries = {
        "mode": "standard",
        **({"max_attempts": 5} if repeats else {"total_max_attempts": 1}),
    }
    # The default pool of ten connections is smaller than the number of parallel transfers.
    return Config(
        retries=retries, user_agent_extra=f"raysm/{__version__}", max_pool_connections=32, **more
    )


class CheckedConnection(http.client.HTTPConnection):
    def __init__(self, connect: Connect, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._connect = connect

    def connect(self) -> None:
        self.sock = self._connect(self.timeout)
        self.sock.settimeout(self.timeout)


def send_through(client: Any, connect: Connect) -> None:
    """Make a boto3 client send all requests over connections from ``connect``.

    Its timeouts and retries stay in effect.
    """
    config = client.meta.config
    session = _make_session(
        connect, (config.connect_timeout, config.read_timeout), config.max_pool_connections
    )
    client.meta.events.register("before-send", lambda request, **_: session.send(request))


def _make_session(connect: Connect, timeout: tuple[float, float], max_connections: int) -> Any:
    from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool
    from botocore.httpsession import URLLib3Session
    from urllib3.exceptions import NewConnectionError

    class CheckedAWSConnection(AWSHTTPConnection):  # type: ignore[misc]
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
        ConnectionCls = CheckedAWSConnection

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

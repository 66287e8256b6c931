"""The server's own paths, which AWS does not have.

They give its status, interrupt a job, wait for one, and enter an instance.
"""

import contextlib
import os
import re
import select
import socket
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from raysm import __version__
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.socket_relay import relay
from raysm.local.instances import Instance
from raysm.local.server.operations import Operations
from raysm.local.server.records import Records
from raysm.local.server.services import Cores
from raysm.local.server.validation import ApiError, validation

PREFIX = "/raysm/"
"""Prefix of the server's own paths, which no bucket of S3 can have."""
INTERRUPT = re.compile(r"/raysm/jobs/([A-Za-z0-9-]{1,63})/interrupt")
END = re.compile(r"/raysm/jobs/([a-z0-9-]{1,32})/([A-Za-z0-9-]{1,63})/end/([0-9]{1,2})")
"""Answered when the job ends, or after so many seconds."""
CHANGE = re.compile(
    r"/raysm/jobs/([a-z0-9-]{1,32})/([A-Za-z0-9-]{1,63})/change/([0-9]{1,12})/([0-9]{1,2})"
)
"""Answered when the count of lines and statuses differs from the first number, or after so many
seconds."""
INSTANCE = re.compile(
    r"/raysm/jobs/([a-z0-9-]{1,32})/([A-Za-z0-9-]{1,63})/instances/(algo-[1-9]\d*)/(.+)"
)
PORT = re.compile(r"ports/([1-9]\d{0,4})")
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raysm\r\n\r\n"


class ConnectionTakenOver(ConnectionResetError):
    """The connection was used for another protocol and is closed.

    Werkzeug ignores such an error.
    """


class RemoteAccess:
    def __init__(
        self,
        records: Records,
        instances: Callable[[str, str], Mapping[str, Instance]],
        *,
        is_permitted: bool,
    ) -> None:
        """Enter running instances, if the scenario permits it.

        ``instances(job, region)`` returns them by host.
        """
        self._records = records
        self._instances = instances
        self._is_permitted = is_permitted

    def asks(self, method: str, path: str) -> bool:
        return method == "POST" and INSTANCE.fullmatch(path) is not None

    def serve(self, path: str, request: Mapping[str, Any], connection: socket.socket) -> NoReturn:
        """Answer a request and use its connection until it is closed.

        Then raise ConnectionTakenOver.

        Raise ApiError for a refusal, before anything is written.
        """
        region, job, host, asked = INSTANCE.fullmatch(path).groups()  # type: ignore[union-attr]
        instance = self._instance(region, job, host)
        port = PORT.fullmatch(asked)
        connection.settimeout(None)
        # A copy, because werkzeug closes its own.
        taken = connection.dup()
        try:
            if port is not None:
                _forward(instance, int(port[1]), taken)
            elif asked == "command":
                _run(instance, request, taken)
            elif asked == "check":
                taken.sendall(UPGRADED)
            else:
                raise ApiError(
                    "UnknownOperationException",
                    f"{path} is not one of the server's own operations",
                    404,
                )
        except OSError:
            pass  # the client has gone
        finally:
            taken.close()
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionTakenOver("the connection was handed over")

    def _instance(self, region: str, job: str, host: str) -> Instance:
        # SSM gives this answer for every reason (github.com/aws/session-manager-plugin/issues/72).
        instance = self._instances(job, region).get(host) if self._is_open(region, job) else None
        if instance is None or instance.exited.done():
            raise ApiError("TargetNotConnected", f"{host} of {job} is not connected.")
        return instance

    def _is_open(self, region: str, job: str) -> bool:
        try:
            record = self._records.get(TRAINING, job, region)
        except ApiError:
            return False
        debugging = record.request.get("RemoteDebugConfig") or {}
        return (
            self._is_permitted
            and record.secondary == "Training"
            and bool(debugging.get("EnableRemoteDebug"))
        )


def _forward(instance: Instance, port: int, connection: socket.socket) -> None:
    try:
        there = instance.connect(port)
    except OSError as error:
        raise ApiError("ConnectionRefused", f"port {port} of {instance.host}: {error}") from error
    there.settimeout(None)
    connection.sendall(UPGRADED)
    relay(connection, there)


def _run(instance: Instance, request: Mapping[str, Any], connection: socket.socket) -> None:
    command = request.get("command")
    stdin = request.get("stdin")
    stdout = request.get("stdout")
    if not (
        isinstance(command, list)
        and command
        and all(isinstance(each, str) for each in (*command, stdin, stdout))
    ):
        raise validation("the request needs command (a list of words), stdin and stdout (paths)")
    running = instance.enter(command, stdin=str(stdin), stdout=str(stdout))
    ended, waker = socket.socketpair()
    with ended, waker:
        try:
            running.exited.add_done_callback(lambda _: _wake(waker))
            connection.sendall(UPGRADED)
            # The client sends nothing, so its connection becomes readable when it is closed.
            select.select([ended, connection], [], [])
            if running.exited.done():
                connection.sendall(b"%d\n" % running.exited.result())
        finally:
            running.kill()


def _wake(waker: socket.socket) -> None:
    with contextlib.suppress(OSError):
        waker.send(b".")


class Console:
    def __init__(
        self,
        operations: Operations,
        cores: Cores,
        *,
        started_s: float,
        shut_down: Callable[[], None],
    ) -> None:
        self._operations = operations
        self._cores = cores
        self._started_s = started_s
        self._shut_down = shut_down

    def answer(self, method: str, path: str) -> Mapping[str, Any]:
        if (method, path) == ("GET", "/raysm/status"):
            return {
                "pid": os.getpid(),
                "version": __version__,
                "started_s": self._started_s,
                "running": self._operations.unfinished(),
                "waiting": self._cores.waiting(),
                "cores": self._cores.cores,
            }
        if (method, path) == ("POST", "/raysm/shutdown"):
            self._shut_down()
            return {"ending": True}
        # AWS has no such operation: the service itself takes capacity back.
        match = INTERRUPT.fullmatch(path)
        if method == "POST" and match:
            self._operations.interrupt(match[1])
            return {"interrupted": match[1]}
        match = END.fullmatch(path)
        if method == "GET" and match:
            return {"ended": self._operations.await_end(match[2], match[1], float(match[3]))}
        match = CHANGE.fullmatch(path)
        if method == "GET" and match:
            return {
                "changes": self._operations.await_change(
                    match[2], match[1], int(match[3]), float(match[4])
                )
            }
        raise ApiError(
            "UnknownOperationException",
            f"{method} {path} is not one of the server's own operations",
            404,
        )

"""Open tunnels and shells into the instances of a running job.

On AWS, SageMaker starts its session agent in the containers:
https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
"""

import json
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from raysm.core.client.job.chain import Chain
from raysm.core.client.job.description import Description, SecondaryStatus
from raysm.core.client.service import Service
from raysm.core.client.targets.local import LocalConnection
from raysm.core.client.tunnel import Tunnel
from raysm.core.request import Ports
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.dashboard.tunnel.plugin import PluginAccess
from raysm.features.dashboard.tunnel.terminal import SHELL, Terminal

CONNECT_S = 30.0
MAX_HEAD_BYTES = 1 << 14


class InstanceAccess(Protocol):
    """Access to the instances of jobs of one target."""

    def check(self) -> None:
        """Check what this machine needs for it; raise MissingDependency if a program is missing."""

    def open_tunnel(self, job: str, host: str, port: int, local_port: int) -> Tunnel:
        """Return a tunnel to ``port`` on the loopback of the instance ``host`` of a running job."""

    def run(self, job: str, host: str, command: Sequence[str], terminal: Terminal) -> int:
        """Run a command in the instance at the user's terminal; return its exit code."""


class DirectAccess:
    """Access to the instances of the embedded SageMaker, through its server."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def check(self) -> None:
        pass

    def open_tunnel(self, job: str, host: str, port: int, local_port: int) -> Tunnel:
        path = f"{self._instance(job, host)}/ports/{port}"
        # Checked once before a client connects: a job that has ended is an error now.
        self.connect(f"{self._instance(job, host)}/check").close()
        return Tunnel(lambda: self.connect(path), local_port=local_port)

    def run(self, job: str, host: str, command: Sequence[str], terminal: Terminal) -> int:
        words = list(command) or ["sh", "-c", SHELL]
        connections: list[socket.socket] = []

        def start(slave: int) -> int:
            name = os.ttyname(slave)
            asked = {
                "command": words,
                "stdin": name if terminal.is_terminal else os.devnull,
                "stdout": name,
            }
            connections.append(self.connect(f"{self._instance(job, host)}/command", asked))
            return connections[0].fileno()

        try:
            code = terminal.run(start)
            return code or self._exit_code(connections[0])
        finally:
            # The server ends a command whose connection is closed.
            for connection in connections:
                connection.close()

    @staticmethod
    def _exit_code(connection: socket.socket) -> int:
        line = connection.makefile("rb").readline()
        if not line:
            raise ServiceError("the instance ended before the command did")
        return int(line)

    def _instance(self, job: str, host: str) -> str:
        return f"/raysm/jobs/{self._service.region}/{job}/instances/{host}"

    def connect(self, path: str, body: Any = None) -> socket.socket:
        server = self._service.connection
        assert isinstance(server, LocalConnection)
        content = json.dumps(body).encode() if body is not None else b""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: raysm\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        try:
            # A job's token may pass here.
            connection = server.connect(CONNECT_S)
            try:
                connection.settimeout(CONNECT_S)
                connection.sendall(head.encode() + content)
                answer = _read_head(connection)
                if answer.startswith(b"HTTP/1.1 101"):
                    connection.settimeout(None)
                    return connection
                raise _read_refusal(connection, answer)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise ServiceError(
                f"the embedded SageMaker of {server.home} cannot be reached: {error}"
            ) from error


def _read_head(connection: socket.socket) -> bytes:
    # One byte at a time: what follows the head belongs to the port.
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    return head


def _read_refusal(connection: socket.socket, head: bytes) -> ServiceError:
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    with connection.makefile("rb") as file:
        content = file.read(int(length[1])) if length else b""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {}
    return ServiceError(
        answer.get("message", "the embedded SageMaker refused"), code=answer.get("__type", "")
    )


_log = logging.getLogger("raysm")


SWITCHABLE = (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING)
"""Statuses in which the documentation allows the switch."""


def switch_remote_debugging(chain: Chain, *, enabled: bool) -> None:
    """Switch the remote debugging of a running Training job on or off.

    Raises:
        InvalidRequest: It is another kind of job, has no network, or is in another status.
        ServiceError: The service refused.
    """
    name = chain.name
    description = chain.describe()
    if chain.api.update is None:
        raise InvalidRequest(
            f"{name} is a {chain.api.title} job, which has no remote debugging; a Training job has"
        )
    if enabled and description.answer.get("EnableNetworkIsolation"):
        raise InvalidRequest(
            f"{name} has no network (security.isolation), so remote debugging cannot work"
        )
    if description.secondary not in SWITCHABLE:
        raise InvalidRequest(
            f"{name} is {description.secondary or description.status}: remote debugging is "
            f"switched while a job is {' or '.join(SWITCHABLE)}"
        )
    try:
        chain.service.update(chain.api, name, RemoteDebugConfig={"EnableRemoteDebug": enabled})
    except ServiceError as error:
        # The code is the same for an account that forbids remote debugging and for a missing
        # permission.
        if not error.code.startswith("AccessDenied"):
            raise
        raise ServiceError(
            f"{error}; that is sagemaker:UpdateTrainingJob, which an account may allow only where "
            "sagemaker:EnableRemoteDebug is false",
            code=error.code,
        ) from error


def session_commands(job: str) -> tuple[str, str]:
    """Return the AWS CLI's commands for a shell in the head and for a tunnel to the dashboard."""
    port = Ports().dashboard
    shell = f"aws ssm start-session --target sagemaker-training-job:{job}_algo-1"
    parameters = f'{{"portNumber":["{port}"],"localPortNumber":["{port}"]}}'
    return (
        shell,
        f"{shell} --document-name AWS-StartPortForwardingSession --parameters '{parameters}'",
    )


ACCESS: Mapping[str, Callable[[Service], InstanceAccess]] = {
    "aws": PluginAccess,
    "local": DirectAccess,
}

HOST = re.compile(r"algo-([1-9]\d{0,3})")
HEAD = "algo-1"


def open_tunnel(chain: Chain, port: int, *, on: str | None = None, local_port: int = 0) -> Tunnel:
    """Open a tunnel to a port of an instance of a running job.

    Args:
        chain: The job, with its follow-up jobs.
        port: Port on the instance's loopback.
        on: The instance; None is the head.
        local_port: Port of this machine; 0 is any free one.

    Raises:
        InvalidRequest: A port is out of range, the instance does not exist, or the job cannot be
            entered now.
        MissingDependency: This machine lacks a program.
        ServiceError: The service refused.
    """
    for name, number, minimum in (("port", port, 1), ("local_port", local_port, 0)):
        if not isinstance(number, int) or not minimum <= number <= 65535:
            raise InvalidRequest(f"{name} must be a number from {minimum} to 65535, got {number!r}")
    access, job, host = _prepare_access(chain, on)
    return access.open_tunnel(job, host, port, local_port)


def run_command(
    chain: Chain,
    command: Sequence[str] = (),
    *,
    on: str | None = None,
    terminal: Terminal | None = None,
) -> int:
    """Run a command in an instance of a running job, or a shell; return its exit code."""
    access, job, host = _prepare_access(chain, on)
    return access.run(job, host, command, terminal or Terminal())


def _prepare_access(chain: Chain, on: str | None) -> tuple[InstanceAccess, str, str]:
    access = ACCESS[chain.service.target.kind](chain.service)
    description = chain.describe()
    if chain.api.update is None:
        raise InvalidRequest(
            f"{description.name} is a {chain.api.title} job, which has no remote debugging; "
            "submit a Training job"
        )
    # Containers run only in this status.
    if description.secondary is not SecondaryStatus.TRAINING:
        raise InvalidRequest(
            f"{description.name} is {description.secondary or description.status}: it can be "
            f"entered while it is {SecondaryStatus.TRAINING}"
        )
    host = _choose_host(description, on)
    # Before remote debugging is switched on for everyone.
    access.check()
    if not (description.answer.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"):
        switch_remote_debugging(chain, enabled=True)
        # The embedded SageMaker has no SSM: only its owner can enter its jobs.
        if chain.service.target.is_billed:
            text = (
                "%s can now be entered by all who may start SSM sessions (raysm "
                "debug --off %s ends that)"
            )
            _log.warning(text, chain.name, chain.name)
    return access, description.name, host


def _choose_host(description: Description, on: str | None) -> str:
    count = sum(number for _, number in description.instances)
    if on is None:
        # The service does not return the request, which names the head's group.
        if len(description.instances) > 1:
            raise InvalidRequest(
                f"{description.name} has instance groups: name the instance, on='algo-1'"
            )
        return HEAD
    named = HOST.fullmatch(on)
    if named is None or int(named[1]) > count:
        raise InvalidRequest(
            f"there is no instance {on!r}: {description.name} has {HEAD} to algo-{count}"
        )
    return on

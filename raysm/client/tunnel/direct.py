"""Tunnels and shells into instances of the embedded SageMaker, which its server connects to directly.

A request to the server asks for a port or a command. After the answer ``101`` the connection carries the
port's bytes, or the command's exit code.
"""

import json
import os
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from raysm.client.service import Service
from raysm.client.tunnel.terminal import SHELL, Terminal
from raysm.client.tunnel.tunnel import InstanceAccess, Tunnel
from raysm.contract.connections import connect_to_own
from raysm.errors import ServiceError

CONNECT_S = 30.0
MAX_HEAD_BYTES = 1 << 14


class DirectAccess(InstanceAccess):
    """Instances of jobs of the embedded SageMaker."""

    def __init__(self, service: Service) -> None:
        """Ask the server of ``service``."""
        self._service = service

    def check(self) -> None:
        """Nothing more is needed."""

    def open_tunnel(self, job: str, host: str, port: int, local_port: int) -> Tunnel:
        """Listen, once the server has the instance."""
        path = f"{self._instance(job, host)}/ports/{port}"
        # Asked once before anybody connects: a job that has ended is an error now.
        self.ask(f"{self._instance(job, host)}/check").close()
        return Tunnel(lambda: self.ask(path), local_port=local_port)

    def run(self, job: str, host: str, command: Sequence[str], terminal: Terminal) -> int:
        """Run the command in a pseudo-terminal of this process."""
        words = list(command) or ["sh", "-c", SHELL]
        connections: list[socket.socket] = []

        def start(slave: int) -> int:
            name = os.ttyname(slave)
            asked = {"command": words, "stdin": name if terminal.is_one else os.devnull, "stdout": name}
            connections.append(self.ask(f"{self._instance(job, host)}/command", asked))
            return connections[0].fileno()

        try:
            code = terminal.join(start)
            return code or self._exit_code(connections[0])
        finally:
            # The server ends a command whose connection is closed.
            for connection in connections:
                connection.close()

    @staticmethod
    def _exit_code(connection: socket.socket) -> int:
        told = connection.makefile("rb").readline()
        if not told:
            raise ServiceError("the instance ended before the command did")
        return int(told)

    def _instance(self, job: str, host: str) -> str:
        return f"/raysm/jobs/{self._service.region}/{job}/instances/{host}"

    def ask(self, path: str, body: Any = None) -> socket.socket:
        """Return the connection, once the server has handed it over.

        Raises:
            ServiceError: The server refuses, or cannot be reached.
        """
        parts = urlsplit(self._service.client("sagemaker").meta.endpoint_url)
        content = json.dumps(body).encode() if body is not None else b""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\nUpgrade: raysm\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        try:
            # What passes here may be a job's token; the server may have ended, and its port be another user's.
            connection = connect_to_own(str(parts.hostname), int(parts.port or 80), CONNECT_S)
            try:
                connection.settimeout(CONNECT_S)
                connection.sendall(head.encode() + content)
                answer = _read_head(connection)
                if answer.startswith(b"HTTP/1.1 101"):
                    connection.settimeout(None)
                    return connection
                raise _refusal(connection, answer)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise ServiceError(f"the embedded SageMaker cannot be reached at {parts.netloc}: {error}") from error


def _read_head(connection: socket.socket) -> bytes:
    # One byte at a time: what follows the head belongs to the port.
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
        byte = connection.recv(1)
        if not byte:
            break
        head += byte
    return head


def _refusal(connection: socket.socket, head: bytes) -> ServiceError:
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
    }
    content = b""
    while len(content) < int(fields.get(b"content-length", b"0")) and (data := connection.recv(1 << 16)):
        content += data
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {}
    return ServiceError(answer.get("message", "the embedded SageMaker refused"), code=answer.get("__type", ""))

"""Listeners on loopback that keep only connections of this user.

Any user of the machine can connect to a port. Without the check, silent connections of another user
would use up the open files of the process that listens.
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from raysm.core.protocol.connections import KernelSilent, find_socket

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The second one has IPv6 sockets that speak IPv4."""
LOOPBACK = "127.0.0.1"
ESTABLISHED = "01"
TABLE_READS = 3
"""A read may miss a row, because the kernel returns a long table in pieces."""
PAUSE_S = 0.1
"""Pause after a failure to accept a connection, for example because no more files can be opened."""


def is_from_our_user(client: tuple[str, int], server_port: int) -> bool:
    """Return whether a connection on ``server_port`` comes from this user or root.

    On systems other than Linux the answer is always yes.

    A client whose user is unknown has closed its socket, or has another address than 127.0.0.1.
    """
    if not sys.platform.startswith("linux"):
        return True
    address, port = client
    return address == LOOPBACK and user_of(port, server_port) in (0, os.getuid())


def user_of(port: int, server_port: int) -> int | None:
    """Return the user of the socket on 127.0.0.1:``port`` that is connected to ``server_port``.

    Return None if there is no such socket, or if it is being closed: the kernel then reports user
    0.
    """
    try:
        found = find_socket((LOOPBACK, port), (LOOPBACK, server_port))
    except KernelSilent:
        return _user_in_tables(port, server_port)
    # The tables would only repeat this, and take long: a flood of closed connections would hold up
    # all callers.
    return found[1] if found is not None and found[0] == int(ESTABLISHED) else None


def _user_in_tables(port: int, server_port: int) -> int | None:
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
    rows = [
        (f"{address}:{port:04X}", f"{address}:{server_port:04X}", ESTABLISHED)
        for address in (plain, mapped)
    ]
    try:
        lines = table.read_text().splitlines()
    except OSError:  # a kernel without IPv6 has no second table
        return None
    for line in lines:
        fields = line.split()
        if (fields[1], fields[2], fields[3]) in rows:
            return int(fields[7])
    return None


def refusal(body: bytes, content_type: str) -> bytes:
    """Return the answer, over HTTP, to a connection of another user."""
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: {content_type}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def refuse(connection: socket.socket, answer: bytes) -> None:
    """Send a refusal, without waiting for a client that does not read."""
    with contextlib.suppress(OSError):
        connection.settimeout(0)
        connection.send(answer)


class OwnListener(socket.socket):
    """A listener on 127.0.0.1, at a free port, for asyncio's servers.

    It closes at once the connections of other users, after ``answer``, and those for which
    ``has_room`` is false.
    """

    def __init__(self, has_room: Callable[[], bool], answer: bytes, backlog: int = 128) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._has_room = has_room
        self._answer = answer
        try:
            self.bind((LOOPBACK, 0))
            self.listen(backlog)
        except BaseException:
            self.close()
            raise
        self.port: int = self.getsockname()[1]

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection; BlockingIOError, as if none waited, if it was refused."""
        try:
            connection, client = super().accept()
        except BlockingIOError:
            raise
        except OSError as error:
            # asyncio would log this error with a traceback a hundred times a second.
            time.sleep(PAUSE_S)
            raise BlockingIOError from error
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)
            if not is_from_our_user(client, self.port):
                refuse(connection, self._answer)
            elif self._has_room():
                stack.pop_all()
                return connection, client
        raise BlockingIOError

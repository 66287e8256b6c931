"""Who asks: loopback is open to every user of a machine, the embedded SageMaker to its own user alone.

Whoever may submit a job may run any program as the server's user. Linux tells the user of each connection.
"""

import os
import socket
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

__all__ = ["is_ours", "user_of"]

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The second has the sockets of IPv6 that speak IPv4."""
LOOPBACK = "127.0.0.1"
ESTABLISHED = "01"
_admitted: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()
"""Open connections whose user was told: he is another one only by another connection."""
LOOKS = 3
"""The kernel shows a long table piece by piece, and a row may slip through between two of them."""


def is_ours(environ: "WSGIEnvironment") -> bool:
    """Whether the request comes from this user, or from root; elsewhere than on Linux nobody can tell, and all may ask.

    On Linux whoever cannot be told is a stranger: one who closed the socket already, or has another address.
    """
    if not sys.platform.startswith("linux"):
        return True
    port = environ.get("REMOTE_PORT")
    if port is None or environ.get("REMOTE_ADDR") != LOOPBACK:
        return False
    connection = environ.get("werkzeug.socket")
    if connection in _admitted:
        return True
    # Root could become this user in any case.
    ours = user_of(int(port), int(environ["SERVER_PORT"])) in (0, os.getuid())
    if ours and isinstance(connection, socket.socket):
        _admitted.add(connection)
    return ours


def user_of(port: int, server_port: int) -> int | None:
    """Return the number of the user whose socket on 127.0.0.1 has ``port`` and is connected to ``server_port``.

    None where the kernel shows no such connection, or one that is being closed: its row says user 0, whoever it was.
    """
    for _ in range(LOOKS):
        for table in TABLES:
            user = _user_in(table, port, server_port)
            if user is not None:
                return user
    return None


def _user_in(table: Path, port: int, server_port: int) -> int | None:
    # Each 32 bits of an address stand in the machine's own byte order.
    plain = f"{int.from_bytes(socket.inet_aton(LOOPBACK), sys.byteorder):08X}"
    mapped = f"{0:016X}{int.from_bytes(bytes.fromhex('0000FFFF'), sys.byteorder):08X}{plain}"
    rows = [(f"{address}:{port:04X}", f"{address}:{server_port:04X}", ESTABLISHED) for address in (plain, mapped)]
    try:
        lines = table.read_text().splitlines()
    # A kernel without IPv6 has no second table.
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if (fields[1], fields[2], fields[3]) in rows:
            return int(fields[7])
    return None

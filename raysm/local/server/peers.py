"""Which user of this machine a connection comes from.

Every user of a machine can connect to loopback, and whoever may submit a job may run any program as the server's user.
Linux tells the user of each connection.
"""

import os
import socket
import sys
from pathlib import Path

__all__ = ["is_from_our_user", "user_of"]

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The second has the sockets of IPv6 that speak IPv4."""
LOOPBACK = "127.0.0.1"
ESTABLISHED = "01"
LOOKS = 3
"""The kernel shows a long table piece by piece, and a row may slip through between two of them."""


def is_from_our_user(client: tuple[str, int], server_port: int) -> bool:
    """Return whether a connection that was just accepted comes from this user or from root, who can be any user.

    Only Linux can tell; on other systems every connection counts as this user's. A client on Linux whose user cannot be
    told is refused: it has closed its socket already, or has another address than 127.0.0.1.

    Args:
        client: Its address and port.
        server_port: The port that accepted it, on 127.0.0.1.
    """
    if not sys.platform.startswith("linux"):
        return True
    address, port = client
    return address == LOOPBACK and user_of(port, server_port) in (0, os.getuid())


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

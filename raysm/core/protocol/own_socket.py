"""Unix sockets between processes of one user: each end asks the kernel for the other's user.

A TCP port says nothing about who listens: when a process ends, any user of the machine can take the
port that it had.
"""

import os
import socket
import struct
import sys
import time

from raysm.errors import ForeignListener

BUSY_POLL_S = 0.01
UCRED = "=iII"
"""``struct ucred`` of unix(7): process, user, group."""
DARWIN_LEVEL = 0
DARWIN_PEER = 1
"""SOL_LOCAL and LOCAL_PEERCRED of sys/un.h on macOS and BSD, which Python does not name."""
DARWIN_BYTES = 76
"""Size of ``struct xucred``; it begins with a version and the user's number."""


def peer_user(connection: socket.socket) -> int:
    """Return the number of the user at the other end of a Unix socket.

    For a listener, this is the user who made it listen.
    """
    if sys.platform.startswith("linux"):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(UCRED))
        return int(struct.unpack(UCRED, found)[1])
    found = connection.getsockopt(DARWIN_LEVEL, DARWIN_PEER, DARWIN_BYTES)
    return int(struct.unpack_from("=II", found)[1])


def is_trusted(user: int) -> bool:
    """Return whether a user may answer for this one: the same user, or root.

    Root can do everything anyway.
    """
    return user in (0, os.geteuid())


def connect(path: str, timeout_s: float | None) -> socket.socket:
    """Return a connection to a Unix socket at which a process of this user or of root listens.

    The timeout is for connecting. ForeignListener: another user's process listens there; nothing
    was sent.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        _connect(connection, path, timeout_s)
        user = peer_user(connection)
        if not is_trusted(user):
            raise ForeignListener(
                f"a process of another user (uid {user}) listens at {path}: nothing was sent to it"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, path: str, timeout_s: float | None) -> None:
    deadline_s = time.monotonic() + (timeout_s or 0.0)
    while True:
        try:
            connection.connect(path)
            return
        except BlockingIOError:
            # With a timeout, Linux does not wait until a listener with a full queue accepts.
            if time.monotonic() >= deadline_s:
                raise TimeoutError(
                    f"{path} accepted no connection within {timeout_s:g} s"
                ) from None
        time.sleep(BUSY_POLL_S)

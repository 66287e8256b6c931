"""Who asks: loopback is open to every user of a machine, the embedded SageMaker to its own user alone.

Whoever may submit a job may run any program as the server's user. Linux tells the user of each connection.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

__all__ = ["is_ours", "user_of"]

TABLE = Path("/proc/net/tcp")


def is_ours(environ: "WSGIEnvironment") -> bool:
    """Whether the request comes from this user, or from root; elsewhere than on Linux nobody can tell."""
    port = environ.get("REMOTE_PORT")
    if port is None or not sys.platform.startswith("linux"):
        return True
    user = user_of(int(port), int(environ["SERVER_PORT"]))
    return user in (None, 0, os.getuid())


def user_of(port: int, server_port: int) -> int | None:
    """Return the number of the user whose socket on 127.0.0.1 has ``port`` and is connected to ``server_port``.

    None where the kernel shows no such connection any more.
    """
    local, remote = f"0100007F:{port:04X}", f"0100007F:{server_port:04X}"
    try:
        lines = TABLE.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if fields[1] == local and fields[2] == remote:
            return int(fields[7])
    return None

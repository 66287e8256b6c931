"""What runs inside an instance of kind namespace, as this machine sees it."""

import os
import time
from pathlib import Path

from raysm.request import Ports

LISTENS = "0A"
"""TCP_LISTEN, as the kernel writes it: include/net/tcp_states.h."""

WATCHED_S = 120.0


def inside(pid: int) -> dict[int, str]:
    """Return the command line of every process in the PID namespace of ``pid``, by its pid on this machine."""
    space = os.readlink(f"/proc/{pid}/ns/pid")
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns" / "pid") == space:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue  # it ended while we looked, or belongs to the system
    return found


def one(pid: int, part: str) -> int:
    """Return the pid of the one process in the instance whose command line contains ``part``."""
    matching = [number for number, command in inside(pid).items() if part in command]
    assert len(matching) == 1, f"{len(matching)} processes with {part!r} in {inside(pid)}"
    return matching[0]


def listens(pid: int, port: int) -> bool:
    """Return whether somebody listens at a TCP port in the network namespace of ``pid``."""
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    sockets = [line.split() for table in tables for line in table]
    return any(fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port for fields in sockets)


def await_watched(head: int) -> None:
    """Wait until ``ray start`` watches the processes of the head, the instance of ``head``.

    On a busy machine user code runs before: the cluster is formed as soon as the GCS knows its nodes. Of what dies
    then ``ray start`` says nothing. Once it watches, the dashboard's port is open.
    """
    deadline_s = time.monotonic() + WATCHED_S
    while not listens(head, Ports().dashboard):
        assert time.monotonic() < deadline_s, inside(head)
        time.sleep(0.05)

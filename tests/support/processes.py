"""What runs inside an instance of kind namespace, as this machine sees it."""

import contextlib
import os
from pathlib import Path

from tests.support.waiting import until

WATCHES = b"This command will now block"
"""What ``ray start`` says before it watches its processes: ray/scripts/scripts.py."""

WATCHED_S = 120.0


def is_running(pid: int) -> bool:
    """Whether a process has not ended: one that has, and that nobody has collected yet, is not running."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def inside(pid: int) -> dict[int, str]:
    """Return the command line of every process in the PID namespace of ``pid``, by its pid on this machine."""
    space = os.readlink(f"/proc/{pid}/ns/pid")
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns" / "pid") == space:
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                )
        except OSError:
            continue  # it ended while we looked, or belongs to the system
    return found


def one(pid: int, part: str) -> int:
    """Return the pid of the one process in the instance whose command line contains ``part``."""
    matching = [number for number, command in inside(pid).items() if part in command]
    assert len(matching) == 1, f"{len(matching)} processes with {part!r} in {inside(pid)}"
    return matching[0]


def await_watched(head: int) -> None:
    """Wait until ``ray start`` watches the processes of the head: of what dies before, it says nothing."""
    output = Path(f"/proc/{one(head, 'raysm.instance.ray_start')}/fd/1")
    until(lambda: WATCHES in output.read_bytes(), WATCHED_S, output.read_text)

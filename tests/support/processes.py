"""What runs inside an instance of kind namespace, as this machine sees it."""

import os
from pathlib import Path


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

"""Let the bootstrap read the Python stacks of this process: ``raysm stacks``.

On a signal to one of its threads, faulthandler writes that thread's stack into a file in memory. It
needs neither the GIL nor the program, which may be stuck. A thread never reads another one's stack,
because that ends the process with SIGSEGV if the other one runs meanwhile. The bootstrap finds the
file by its name in ``/proc/PID/fd``, so a process that has closed it, or replaced itself by another
program, is never signalled: the signal would end it.

This module imports only the standard library, because scripts load it by its path. It works on
Linux only.
"""

import contextlib
import faulthandler
import os
import signal
import sys

SIGNAL = int(signal.SIGRTMIN) + 6 if sys.platform == "linux" else 0
"""A real-time signal, because programs use SIGUSR1 and SIGUSR2 themselves."""
NAME = "raysm-stacks"
MAX_ROLE = 100

CELL = "raysm-cell"
MAX_CELL_NAME = 200

_hooks: list[bool] = []
_cells: list[int] = []
"""The descriptor of the file with the source of the current cell."""


def register(role: str = "") -> None:
    """Let the stacks of this process, and of those that it forks, be read.

    Args:
        role: What the process does, ``rank 3``; it replaces that of an earlier call.
    """
    if sys.platform != "linux":
        return
    # Without memory or descriptors, the program must run all the same.
    with contextlib.suppress(OSError, RuntimeError):
        earlier = find_file(os.getpid())
        file = os.memfd_create(f"{NAME}:{role[:MAX_ROLE]}")
        import fcntl

        # The reader empties the file before each signal.
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
        faulthandler.register(SIGNAL, file=file, all_threads=False)
        if earlier is not None:
            os.close(earlier[0])
        if not _hooks:
            _hooks.append(True)
            # A forked child has its parent's file until it has its own.
            os.register_at_fork(after_in_child=lambda: register("forked"))


def find_file(pid: int, kind: str = NAME) -> tuple[int, str] | None:
    """Return the descriptor of a process's file and the process's role, or None.

    Args:
        pid: The process.
        kind: ``NAME``; of ``CELL``, the name of the cell takes the place of the role.
    """
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith(f"/memfd:{kind}:"):
                    role = target.removeprefix(f"/memfd:{kind}:").removesuffix(" (deleted)")
                    return int(name), role
    return None


def show_cell(name: str, source: str) -> None:
    """Let the bootstrap read the lines of a cell that this process runs from now on.

    No file has them. The previous cell's are dropped.
    """
    if sys.platform != "linux" or len(name.encode()) > MAX_CELL_NAME:
        return
    # Without memory or descriptors, the cell must run all the same.
    with contextlib.suppress(OSError):
        while _cells:
            os.close(_cells.pop())
        _cells.append(os.memfd_create(f"{CELL}:{name}"))
        with open(_cells[0], "wb", closefd=False) as file:
            file.write(source.encode())


def read_cell(pid: int, name: str) -> list[str]:
    """Return the lines of the cell that a process runs if the cell has this name."""
    with contextlib.suppress(OSError):
        found = find_file(pid, CELL)
        if found is not None and found[1] == name:
            with open(f"/proc/{pid}/fd/{found[0]}", "rb") as file:
                return file.read().decode(errors="replace").splitlines()
    return []

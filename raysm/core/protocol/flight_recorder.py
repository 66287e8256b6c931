"""Let the bootstrap read the last collectives of this process from torch's flight recorder.

torch records them by default. A thread waits for a byte in a pipe, which costs nothing, and then
writes the records into a file in memory. So a process that is blocked in a collective answers too;
one that holds the GIL does not. The bootstrap finds both by the file's name in ``/proc/PID/fd``.

Imports only the standard library, because scripts load it by its path. Linux only.
"""

import _thread
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

NAME = "raysm-collectives"
DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
"""torch's functions for NCCL, since release 2.5, and for the other backends."""


def serve(c10d: Any) -> None:
    """Answer the bootstrap from now on.

    Args:
        c10d: The module ``torch._C._distributed_c10d``.
    """
    dumps = [getattr(c10d, name) for name in DUMPS if hasattr(c10d, name)]
    if sys.platform != "linux" or not dumps or find_recorder(os.getpid()) is not None:
        return
    # Without memory or descriptors, the program must run all the same.
    with contextlib.suppress(OSError, RuntimeError):
        reader, writer = os.pipe()
        file = os.memfd_create(f"{NAME}:{writer}")
        files = [reader, writer, file]

        def close() -> None:
            while files:
                with contextlib.suppress(OSError):
                    os.close(files.pop())

        # A forked child has no such thread, and no collectives.
        os.register_at_fork(after_in_child=close)
        # Not a threading.Thread, which the program would see among its own.
        _thread.start_new_thread(_answer, (reader, file, dumps))


def _answer(reader: int, file: int, dumps: Sequence[Callable[[], str | bytes]]) -> None:
    # The program's signals are for its own threads.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # The program may close all descriptors.
    with contextlib.suppress(OSError):
        while os.read(reader, 1):
            parts = []
            for dump in dumps:
                with contextlib.suppress(Exception):
                    text = dump()
                    parts.append(text.encode() if isinstance(text, str) else text)
            content = b"[%b]\n" % b",".join(parts)
            os.ftruncate(file, 0)
            written = 0
            while written < len(content):
                written += os.pwrite(file, content[written:], written)


def find_recorder(pid: int) -> tuple[int, int] | None:
    """Return the descriptors of a process's file and of the pipe's end to write to, or None."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError, ValueError):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith(f"/memfd:{NAME}:"):
                    writer = target.removeprefix(f"/memfd:{NAME}:").removesuffix(" (deleted)")
                    if os.readlink(f"{folder}/{int(writer)}").startswith("pipe:"):
                        return int(name), int(writer)
    return None

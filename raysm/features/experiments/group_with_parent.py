"""Run a command that ends, with its children, when its parent ends.

Standard input is a pipe whose other end only the parent has, so it closes however the parent ends,
or when the parent wants the end. ``die_with_parent`` ends one process alone. This program, the
command and the processes that it starts are one process group: the parent starts this program with
``start_new_session``.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

END_S = 5.0
"""Seconds from SIGTERM to SIGKILL for the group."""


def wrap(command: Sequence[str]) -> list[str]:
    """Return a command line that runs ``command`` until standard input is closed."""
    # -I -S: Python then starts in 15 ms, because it does not read the packages of a virtual
    # environment.
    return [sys.executable, "-I", "-S", __file__, *command]


def main(command: Sequence[str]) -> None:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # Only now, because the command would inherit it. The group gets SIGTERM before SIGKILL.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status = process.wait()
    sys.exit(status if status >= 0 else 128 - status)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.killpg(0, signal.SIGTERM)
    # The main thread may end this process before, once the command has ended.
    time.sleep(END_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Run a command that dies with the process that started it.

Usage: ``python die_with_parent.py PARENT_PID COMMAND …``.

Linux ends the command with SIGKILL when its parent ends, however the parent ends. It is a program
of its own because setting this between fork and exec is unsafe in a process with threads; it
imports almost nothing and takes 15 ms.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def wrap(command: Sequence[str]) -> list[str]:
    """Return the command line that runs ``command`` so that it dies with this process.

    Outside of Linux, ``command`` is returned unchanged.
    """
    if sys.platform != "linux":
        return [*command]
    # -I -S: Python then starts in 15 ms, because it does not read the packages of a virtual
    # environment.
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(arguments: list[str]) -> None:
    parent = int(arguments[0])
    command = arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the line above
            os._exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        # As shells do. The last line of a program's output is the reason of its failure.
        sys.stderr.write(f"{command[0]}: cannot be started: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Run a command beside an instance's main process; a child of the keeper loads this module by its path.

The command runs in the same namespaces and environment, with the terminal or the pipe that the request names.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["become"]

PR_SET_PDEATHSIG = 1
NAMESPACES = ("ipc", "uts", "mnt")
"""Those of an instance in which a keeper's child is not: its network it has from the keeper, and since the keeper made
the PID namespace, all its children are in that one."""
# Without it vi, less and top say that the terminal is not fully functional.
TERMINAL = {"TERM": "xterm-256color"}
"""What the agent of SSM sets for a shell."""


def become(request: Mapping[str, Any], started: Mapping[str, Any], keeper_pid: int) -> NoReturn:
    """Turn into the command of ``request``."""
    # First: a keeper that is killed meanwhile must leave nobody behind.
    _die_with_parent()
    stdin, stdout = _open(request["stdin"], os.O_RDONLY), _open(request["stdout"], os.O_WRONLY)
    if started.get("namespaces") or started.get("overlays"):
        # After the pipes were opened: their names are those of this machine, which the instance does not have.
        _join(keeper_pid)
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(stdin if number == 0 else stdout, number)
    if os.isatty(1):
        _take_terminal()
    _reset_signals()
    if started.get("user"):
        # Groups before user: who is no longer root may not change them.
        os.setgroups([])
        os.setgid(started["user"])
        os.setuid(started["user"])
    # As the main process has it: a keeper's own is the user's.
    os.umask(0o022)
    os.chdir(started["cwd"])
    os.execvpe(request["command"][0], request["command"], {**started["environment"], **TERMINAL})


def _open(path: str, flags: int) -> int:
    # Not as the one that controls this process: a terminal is taken by the command alone.
    descriptor = os.open(path, flags | os.O_NOCTTY)
    # Above the standard ones, which are replaced one after the other.
    while descriptor < 3:
        descriptor = os.dup(descriptor)
    return descriptor


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(1, termios.TIOCSCTTY, 0)


def _join(keeper_pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    # All before the first is entered: in its mounts there may be another /proc.
    try:
        opened = [os.open(f"/proc/{keeper_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
    except FileNotFoundError:
        # The instance has just ended, and all that runs in it is killed.
        os.kill(os.getpid(), signal.SIGKILL)
        raise
    for descriptor in opened:
        if libc.setns(descriptor, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")


def _die_with_parent() -> None:
    with contextlib.suppress(AttributeError):  # elsewhere than on Linux nobody can ask for it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _reset_signals() -> None:
    """Hear every signal again, as a program expects it: a keeper passes over some, and so does Python."""
    for name in ("INT", "TERM", "HUP", "PIPE", "XFSZ", "QUIT", "CHLD", "TSTP", "TTIN", "TTOU"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())

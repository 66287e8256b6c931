"""Start child processes, reap them and their orphans, and end all of them.

One reaper collects the exit status of every child of this process, including the orphans that the kernel hands to a
subreaper. Nothing here calls ``Popen.wait`` or ``poll``, which would race with the reaper.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from raysm.bootstrap import die_with_parent

WAIT = "--wait"
"""Tells the driver, and a worker's Ray, to import what it needs and to wait for the cluster's address on its stdin."""

# -P: they begin in the folder of the user's source or of the image, whose json.py or raysm.py is not meant for them.
MODULE = (sys.executable, "-P", "-m")


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    """Commands, to which the bootstrap appends arguments."""

    ray: tuple[str, ...] = (*MODULE, "raysm.bootstrap.ray_start")
    """The ``ray`` command; gets ``start --block ...``, behind WAIT where it joins a head that may not be there yet, and
    tells on the head which nodes are registered."""
    driver: tuple[str, ...] = (*MODULE, "raysm.workloads.driver")
    """Runs the workload on the formed cluster; gets nothing, or WAIT if it is started before that."""
    tracked_driver: tuple[str, ...] = (*MODULE, "raysm.workloads.tracked")
    """Does the same, and mirrors its metrics, where the head is asked to."""


# ctypes and /proc, because this runs before anything is installed in the instance: no psutil here.
PR_SET_CHILD_SUBREAPER = 36
STAT_BYTES = 4096
"""More than a line of ``/proc/PID/stat`` has: it is read by one call, of hundreds of processes each second."""
Stream = int | IO[Any] | None


class Child:
    """A child process in a session and process group of its own."""

    def __init__(self, popen: "subprocess.Popen[bytes]", ended: "asyncio.Future[int]") -> None:
        self._popen, self.ended = popen, ended
        self.pid = popen.pid
        self.stdin, self.stdout, self.stderr = popen.stdin, popen.stdout, popen.stderr

    @property
    def status(self) -> int | None:
        """The exit code, or minus the signal that killed it; None while it runs."""
        return self.ended.result() if self.ended.done() else None

    def signal(self, number: int) -> None:
        """Send a signal to the process itself."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to what is left of its process group, the process itself included."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; None if that does not come within ``timeout_s``."""
        await asyncio.wait([self.ended], timeout=timeout_s)
        return self.status


class Children:
    """All child processes of this process; made inside the event loop that reaps them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.Future[int]]] = {}
        self._groups: list[int] = []
        self.reaped = 0
        """Orphans reaped."""
        # Also where an init is PID 1: it would reap the orphans, and not end them at the end of a job that fails.
        _adopt_orphans(True)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> Child:
        """Start a command that does not outlive this process.

        Raises:
            OSError: The program or the folder is not there.
        """
        popen = subprocess.Popen(
            die_with_parent.wrap(command),
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            # A group of its own: what it starts can be ended with it, and Ctrl-C reaches the bootstrap alone.
            start_new_session=True,
        )
        ended: asyncio.Future[int] = self._loop.create_future()
        # No race: the reaper runs in this very thread, so not before this line.
        self._running[popen.pid] = (popen, ended)
        self._groups.append(popen.pid)
        return Child(popen, ended)

    async def end_all(self, grace_s: float) -> None:
        """End every descendant: SIGTERM to the own children, SIGKILL to whatever is left after ``grace_s``."""
        deadline = time.monotonic() + grace_s
        for popen, _ in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(popen.pid, signal.SIGTERM)
        if self._running and grace_s > 0:
            await asyncio.wait([ended for _, ended in self._running.values()], timeout=grace_s)
        # Grandchildren get the rest of the grace; then everything is killed, until nothing is left.
        while (left := descendants(os.getpid())) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        # Without /proc only the process groups are known.
        for group in () if sys.platform == "linux" else self._groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        give_up = time.monotonic() + 5
        while (left := descendants(os.getpid())) and time.monotonic() < give_up:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.02)
        # Their zombies come here one generation after the other.
        while self._reap() and time.monotonic() < give_up:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Stop reaping."""
        _adopt_orphans(False)
        self._loop.remove_signal_handler(signal.SIGCHLD)

    def _reap(self) -> bool:
        """Collect the status of every child that has ended; return whether there are others."""
        while True:
            try:
                # One SIGCHLD may stand for many that have ended: none of them is announced again.
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid not in self._running:
                self.reaped += 1
                continue
            popen, ended = self._running.pop(pid)
            popen.returncode = os.waitstatus_to_exitcode(status)
            ended.set_result(popen.returncode)


def _adopt_orphans(adopt: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def descendants(pid: int, read_parents: Callable[[], Mapping[int, int]] | None = None) -> list[int]:
    """Return the processes below ``pid``, zombies excepted; none where there is no ``/proc``.

    Args:
        pid: The process whose descendants are wanted.
        read_parents: Returns ``{process: its parent}``; None reads ``/proc``.
    """
    parents = (read_parents or _read_parents)()
    below: dict[int, list[int]] = {}
    for process, parent in parents.items():
        below.setdefault(parent, []).append(process)
    pids: list[int] = []
    front = [pid]
    while front:
        front = [process for parent in front for process in below.get(parent, [])]
        pids += front
    return pids


def _read_parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    for process in processes:
        try:
            with open(f"/proc/{process}/stat", "rb", buffering=0) as file:
                # The name, in parentheses, may hold anything: the fields follow its last parenthesis.
                state, parent = file.read(STAT_BYTES).rpartition(b")")[2].split(None, 2)[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            parents[int(process)] = int(parent)
    return parents

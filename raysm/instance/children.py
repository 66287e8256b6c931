"""Start child processes, reap them and their orphans, and end all of them.

One reaper collects the exit status of every child of this process, including the orphans that the
kernel hands to a subreaper. Nothing here calls ``Popen.wait`` or ``poll``, which would race with
the reaper.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from raysm.instance import die_with_parent

WAIT = "--wait"
"""An option of the driver and of ``ray_start``: import everything, then wait for the cluster's
address on stdin."""
# -P: the working folder, of the source or of the image, may contain a json.py or raysm.py that must
# not be imported.
MODULE = (sys.executable, "-P", "-m")


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    # -u: some releases of Ray print why a node ends, and exit without flushing it.
    ray: tuple[str, ...] = (sys.executable, "-u", "-P", "-m", "raysm.instance.ray_start")
    """The ``ray`` command; the arguments are ``start --block ...``, on a worker after WAIT."""
    driver: tuple[str, ...] = (*MODULE, "raysm.instance.work.driver")
    tracked_driver: tuple[str, ...] = (*MODULE, "raysm.features.experiments.tracked")


# ctypes and /proc in place of psutil, because this runs before any package is installed.
PR_SET_CHILD_SUBREAPER = 36
STAT_BYTES = 4096
Stream = int | IO[Any] | None


class Child:
    def __init__(self, popen: "subprocess.Popen[bytes]", ended: "asyncio.Future[int]") -> None:
        self._popen = popen
        self.ended = ended
        self.pid = popen.pid
        self.stdin = popen.stdin
        self.stdout = popen.stdout
        self.stderr = popen.stderr

    @property
    def status(self) -> int | None:
        return self.ended.result() if self.ended.done() else None

    def signal(self, number: int) -> None:
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def send_line(self, text: str) -> None:
        """Write a line to its stdin and close that; only the first call counts."""
        if self.stdin is not None and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # it has ended
                self.stdin.write(f"{text}\n".encode())
                self.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()

    async def wait(self, timeout_s: float | None = None) -> int | None:
        await asyncio.wait([self.ended], timeout=timeout_s)
        return self.status


class Children:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, tuple[subprocess.Popen[bytes], asyncio.Future[int]]] = {}
        self._groups: list[int] = []
        self.reaped = 0
        """Number of reaped orphans."""
        # Needed even if an init process is PID 1, which would reap the orphans, but not end them
        # when a job fails.
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
        popen = subprocess.Popen(
            die_with_parent.wrap(command),
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            # In a group of its own, it can be ended with its children, and Ctrl-C reaches only the
            # bootstrap.
            start_new_session=True,
        )
        ended: asyncio.Future[int] = self._loop.create_future()
        # There is no race, because the reaper runs in this thread.
        self._running[popen.pid] = (popen, ended)
        self._groups.append(popen.pid)
        return Child(popen, ended)

    async def end_all(self, grace_s: float) -> None:
        """End every descendant: SIGTERM for children, SIGKILL for those left after ``grace_s``."""
        deadline = time.monotonic() + grace_s
        for popen, _ in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(popen.pid, signal.SIGTERM)
        if self._running and grace_s > 0:
            await asyncio.wait([ended for _, ended in self._running.values()], timeout=grace_s)
        # Grandchildren have the rest of the grace period; then all processes are killed until none
        # is left.
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
        # Zombies are reparented to this process one generation after the other.
        while self._reap() and time.monotonic() < give_up:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        _adopt_orphans(False)
        self._loop.remove_signal_handler(signal.SIGCHLD)

    def _reap(self) -> bool:
        while True:
            try:
                # The kernel may send one SIGCHLD for several children, so collect all of them.
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


def descendants(pid: int) -> list[int]:
    """Return the processes below ``pid`` without zombies; empty on a system without ``/proc``."""
    below = _read_children()
    pids: list[int] = []
    front = [pid]
    while front:
        front = [process for parent in front for process in below.get(parent, [])]
        pids += front
    return pids


def _read_children() -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    try:
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    for process in processes:
        try:
            with open(f"/proc/{process}/stat", "rb", buffering=0) as file:
                # The process's name, in parentheses, may contain any character; the fields follow
                # the last parenthesis.
                state, parent = file.read(STAT_BYTES).rpartition(b")")[2].split(None, 2)[:2]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            below.setdefault(int(parent), []).append(int(process))
    return below

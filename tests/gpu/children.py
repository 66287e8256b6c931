"""Run a command, and end all that it has started if it hangs: ranks would keep their GPU's memory."""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

RUNS = "TESTS_GPU_RUNS"
"""The variable that marks what a command has started, also in sessions of its own: torchrun starts
each rank in one."""
GRACE_S = 10.0
KILL_S = 30.0
"""Seconds until the kernel has removed a process; one that waits for a broken GPU may stay."""


def run(command, *, limit_s, grace_s=GRACE_S, leaves_daemons=False, env=None, **more):
    """Run a command and return what has completed, as ``subprocess.run`` does.

    After ``limit_s`` seconds, or if this process is interrupted, SIGTERM asks it to end. All that
    is left after ``grace_s`` more seconds is killed; with ``leaves_daemons`` only what is in the
    command's own session, because the caller ends the rest.

    Raises:
        subprocess.TimeoutExpired: It ran longer than ``limit_s``.
    """
    token = secrets.token_hex(8)
    env = dict(os.environ if env is None else env)
    env[RUNS] = f"{env.get(RUNS, '')} {token}"
    child = subprocess.Popen(command, env=env, start_new_session=True, **more)
    try:
        output, errors = child.communicate(timeout=limit_s)
    except BaseException:
        _end(child, token.encode(), grace_s, leaves_daemons)
        raise
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def _end(child, token, grace_s, leaves_daemons):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    deadline_s = time.monotonic() + KILL_S
    killed = set()
    while time.monotonic() < deadline_s:
        marked = {
            pid for pid in _marked(token) if not leaves_daemons or _session_of(pid) == child.pid
        }
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= marked
        child.poll()
        # What has given back its memory may hold its GPU for a moment longer.
        if not any(map(_is_running, killed)):
            break
        time.sleep(0.05)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _marked(token):
    """Return the processes whose environment has the token."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        # It may have ended, or be another user's.
        with contextlib.suppress(OSError):
            if token in (folder / "environ").read_bytes():
                found.add(int(folder.name))
    return found


def _session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"

"""A process that imports what tests need and then forks for each run of pytest, so that a run begins at once."""

import contextlib
import ctypes
import importlib
import json
import os
import sys
import time
import traceback

import psutil

LOG = "last-run.log"
"""In the copy of the tree: what the last run printed."""
PR_SET_CHILD_SUBREAPER = 36
WAIT_S = 0.02


def _run(arguments: list[str]) -> None:
    """Run pytest in this forked process, and end it with pytest's exit code."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 70
    try:
        import pytest

        code = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(child: int, limit_s: float) -> int | str:
    """Return the exit code of a process, or "timeout"; none of the processes that it started stays."""
    end_s = time.monotonic() + limit_s
    code: int | str = "timeout"
    while time.monotonic() < end_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(WAIT_S)
    # Again and again, since a process may start another one before it is killed.
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(WAIT_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return code


def main() -> None:
    # The children of a process that was killed become those of this one, also if they have a session of their own.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for name in json.loads(sys.stdin.readline()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        run = json.loads(line)
        child = os.fork()
        if not child:
            _run(run["arguments"])
        print(_wait(child, run["limit_s"]), flush=True)


if __name__ == "__main__":
    main()

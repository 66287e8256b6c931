"""A process that imports what tests need and then forks for each run of pytest, so that a run begins at once."""

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback

LOG = "last-run.log"
"""In the copy of the tree: what the last run printed."""
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
    """Return the exit code of a process, or "timeout"; nothing of its session stays."""
    end_s = time.monotonic() + limit_s
    code: int | str = "timeout"
    while time.monotonic() < end_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(WAIT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code == "timeout":
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    return code


def main() -> None:
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

"""A script as a program of its own beside others of its job: it ends with whoever started it, and says why it failed.

What flows in is a command, what flows out are its lines, as it writes them.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from raysm.bootstrap import die_with_parent, environment

__all__ = ["TAIL_LINES", "headline", "kill", "started"]

TAIL_LINES = 30
"""Of what a script wrote, those that are told where it fails."""


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Start a program, with its output and its errors as one stream of lines; at the end it is there no more.

    Args:
        command: Of it.
        folder: In which it runs.
        variables: Of its environment, beside those of this process.
    """
    process = subprocess.Popen(
        # A raylet that kills the worker would otherwise leave the script running, with its GPU.
        die_with_parent.wrap(list(command)),
        env=environment.child_environment({"PYTHONUNBUFFERED": "1", **(variables or {})}),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # One stream: its lines stand in the log in the order in which they were written.
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A group of its own, so that ``kill`` reaches what it has started, and not the worker.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # Also where it is ended early: what the script has started goes with it.
        kill(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def kill(process: "subprocess.Popen[str]") -> None:
    """End a program that ``started`` began, with all that it has started."""
    # It may have ended by itself, or changed its user: nothing is left to do then.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def headline(status: int, tail: Sequence[str]) -> str:
    """Return in one line how a script failed: its exit code, and what it wrote last."""
    ended = f"the script ended with {status}" if status > 0 else f"the script was killed by signal {-status}"
    return f"{ended}: {tail[-1]}" if tail else ended

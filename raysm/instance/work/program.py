"""Run the user's program as a process that ends with its parent.

This covers its command line, its output and its failure.
"""

import contextlib
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from raysm.core.protocol import script_main
from raysm.core.protocol.events import ProgressLines
from raysm.core.protocol.source import interpreter
from raysm.instance import die_with_parent, environment


def command_line(program: str, args: Sequence[str], *, source: Path, is_command: bool) -> list[str]:
    """Return the words that start a program.

    Args:
        program: A script by its path inside ``source``, or a command.
        args: The arguments.
        source: The folder with the user's source.
        is_command: True for a command, which the system finds by ``PATH``, or by a path in the
            working folder.
    """
    if is_command:
        return [program, *args]
    script = source / program
    before = interpreter(script)
    return [*before, str(script), *args] if before else script_main.command(str(script), args)


TAIL_LINES = 30
DRAIN_S = 2.0
POLL_S = 0.5
CHUNK = 65536


@contextlib.contextmanager
def start_program(command: Sequence[str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a program, with its output and errors as one stream.

    If it still runs at the end, kill it.
    """
    process = subprocess.Popen(
        # A raylet that kills the worker would otherwise leave the script running, with its GPU.
        die_with_parent.wrap(list(command)),
        env=environment.child_environment({"PYTHONUNBUFFERED": "1"}),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # One stream: its lines stand in the log in the order in which they were written.
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A separate group, so that ``kill`` reaches what it has started, and not the worker.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # Also if the script ended by itself, because processes that it started must end with it.
        kill(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def read_lines(process: "subprocess.Popen[str]", drain_s: float = DRAIN_S) -> Iterator[str]:
    """Yield a program's lines until it has ended.

    Its output may end later: background processes may keep it open.
    """
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    lines = ProgressLines()
    until_s = math.inf
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while time.monotonic() < until_s:
            if until_s == math.inf and process.poll() is not None:
                until_s = time.monotonic() + drain_s
            if not selector.select(min(POLL_S, drain_s)):
                continue
            data = os.read(descriptor, CHUNK)
            for line in lines.feed(data).split(b"\n")[:-1]:
                yield f"{line.decode(errors='replace')}\n"
            if not data:
                break
    for line in lines.rest().split(b"\n")[:-1]:
        yield f"{line.decode(errors='replace')}\n"


def kill(process: "subprocess.Popen[str]") -> None:
    # It may have ended by itself, or changed its user.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def describe_end(status: int, tail: Sequence[str]) -> str:
    ended = (
        f"the script ended with {status}"
        if status > 0
        else f"the script was killed by signal {-status}"
    )
    return f"{ended}: {tail[-1]}" if tail else ended

"""Write the bootstrap's output: events on stdout by the line, messages for people on stderr."""

import contextlib
import os
import sys

from raysm.core.protocol.events import Event, line


def emit_event(event: Event) -> None:
    # One write, so that a driver that shares this stdout cannot cut the line in two.
    sys.stdout.write(line(event) + "\n")
    sys.stdout.flush()


def copy_to_log(descriptor: int, data: bytes) -> None:
    """Write a child's output to a descriptor.

    sys.stdout is not used: a thread could hold its lock at the end.
    """
    with contextlib.suppress(OSError):  # the log is not read any more, which must not stop the job
        while data:
            data = data[os.write(descriptor, data) :]


def remark(text: str) -> None:
    sys.stderr.write("".join(f"raysm: {line}\n" for line in text.split("\n")))
    sys.stderr.flush()

"""Write the bootstrap's output: events on stdout, one line each, and messages for people on stderr."""

import sys

from raysm.contract.events import Event, line


def emit_event(event: Event) -> None:
    # One write, so that a driver that shares this stdout cannot cut the line in two.
    sys.stdout.write(line(event) + "\n")
    sys.stdout.flush()


def remark(text: str) -> None:
    sys.stderr.write(f"raysm: {text}\n")
    sys.stderr.flush()

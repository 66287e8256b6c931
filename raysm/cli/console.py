"""Consoles that report a closed pipe, and last words that reach the user when stdout is gone."""

import contextlib
import os
import sys

import rich.console
from rich.text import Text

__all__ = ["Console", "discard_unread_output", "say_last"]


class Console(rich.console.Console):
    """Raises BrokenPipeError when its reader is gone; rich's own console exits the program at once."""

    def on_broken_pipe(self) -> None:
        """Pass the error on: a running job has to be stopped first.

        Raises:
            BrokenPipeError: Always.
        """
        raise BrokenPipeError("the reader of the output has gone")


def say_last(console: rich.console.Console, text: str) -> None:
    """Print a line where the user can still read it: on ``console``, else on stderr, else on the terminal.

    Ctrl-C in ``raysm run x.py 2>&1 | tee log`` ends ``tee`` too. The line must not fail then, since the job is stopped
    after it.
    """
    try:
        console.print(Text(text), soft_wrap=True, highlight=False)
        return
    except OSError:
        pass
    line = f"{text}\n".encode()
    try:
        os.write(2, line)
    except OSError:
        # Without a terminal there is no reader left.
        with contextlib.suppress(OSError), open("/dev/tty", "wb", buffering=0) as terminal:
            terminal.write(line)


def discard_unread_output() -> None:
    """Drop what stdout and stderr still hold for a reader that is gone, so that Python's exit does not fail on it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)

"""The command ``raysm``.

``main`` imports everything else, because most of a short command is imports.
"""

import os
import signal
import sys
from collections.abc import Sequence

from raysm.cli.interrupts import INTERRUPTED, OF_THE_PROCESS
from raysm.core.protocol.script_main import leave_at_once_after_exit_handlers


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 for success; 1 if a job, a row of a grid or a trial of a sweep failed (the result of the
        best other trial is still fetched), or the doctor found a problem; 2 if the request is
        invalid; 3 if the doctor found no problem but could not check everything; 4 if the
        credentials have expired and the job keeps running; 130 after Ctrl-C; 141 if the reader of
        stdout was gone and the job was stopped.
    """
    if argv is not None:
        from raysm.cli.arguments import run

        return run(argv)
    _open_closed_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, OF_THE_PROCESS.take)
    # Tearing down the interpreter with all that a job needs would take a quarter of a second after
    # the last line.
    set_exit_status = leave_at_once_after_exit_handlers()
    status = 1
    try:
        from raysm.cli.arguments import run

        status = run(None)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except BaseException as error:
        # An import that is interrupted may raise another error.
        if not (OF_THE_PROCESS.has_come or isinstance(error, KeyboardInterrupt)):
            raise
        status = INTERRUPTED
        print("interrupted", file=sys.stderr)
    finally:
        # The exit handlers of Python would print a traceback for a KeyboardInterrupt.
        if signal.getsignal(signal.SIGINT) == OF_THE_PROCESS.take:
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        set_exit_status(status)
    return status


def _open_closed_streams() -> None:
    """Replace standard streams that the caller closed by /dev/null: Python has None for them."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # The lowest free number, which is the stream's own unless the process has opened a file
            # since.
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode, encoding="utf-8"))

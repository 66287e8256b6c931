"""What user code forks from a process of raysm has no part in the session, call or trial.

A forked process inherits handlers of signals, and the stack of the call that forked it. The
handlers would remove folders of the process that installed them, and the stack would go on with its
work.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
OWN = ("raysm", "ray")
"""Packages whose handlers act for their own process."""
FAILED = 1
INTERRUPTED = 130


_forking = threading.local()
"""The signal mask of a thread that forks."""


def _block_signals() -> None:
    # Other packages' hooks run before that below, and an inherited handler would raise in them, in
    # vain: a child that is terminated just after its start would live on.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEFAULTS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget_handlers() -> None:
    for number, default in DEFAULTS.items():
        module = getattr(signal.getsignal(number), "__module__", None) or ""
        if module.partition(".")[0] in OWN:
            # ValueError: an interpreter of its own in a thread sets no handlers.
            with contextlib.suppress(ValueError):
                signal.signal(number, default)
    _unblock_signals()


os.register_at_fork(
    before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_forget_handlers
)


@contextlib.contextmanager
def ending_forks() -> Iterator[None]:
    """End a process that the body has forked where the body ends, as a program ends."""
    owner = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != owner:
            _leave(_status_of(error))
        raise
    if os.getpid() != owner:
        _leave(0)


def _status_of(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return FAILED
    traceback.print_exception(error)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def _leave(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    # Without exit handlers and ``finally``, which belong to the process that forked.
    os._exit(status & 0xFF)

"""Signals that end a command."""

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, ``kill``, and a closed terminal; Windows has no SIGHUP."""

REPEATED_S = 1.0
"""For so long after a signal, further ones count as the same: a key that is held, or a signal sent
to each process."""

STOPPING_S = 15.0
"""For so long at most, a signal does not interrupt the call that stops a job."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a command that sent a job; the text says what the job does now."""


class Interrupts:
    """Raises KeyboardInterrupt for a signal, and remembers it.

    Python drops an exception that is raised in a callback of the garbage collector, and some
    imports catch it.
    """

    def __init__(self) -> None:
        self.has_come = self.is_held = False
        self._ignored_until_s = 0.0

    def take(self, signum: int, frame: FrameType | None) -> None:
        if time.monotonic() < self._ignored_until_s:
            return
        is_first = not self.has_come
        self.has_come = True
        # The second signal is not held, because the write may be stuck in a pipe that is not read.
        if self.is_held and is_first:
            return
        self.ignore_for(REPEATED_S)
        raise KeyboardInterrupt

    def ignore_for(self, seconds: float) -> None:
        self._ignored_until_s = time.monotonic() + seconds

    def raise_if_lost(self) -> None:
        if self.has_come:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False
        self.raise_if_lost()


OF_THE_PROCESS = Interrupts()
"""Takes SIGINT from the start of a command on, except within ``interruptible``; held between
sending and following."""


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Raise KeyboardInterrupt for each signal that ends a command.

    The block should begin with ``raise_if_lost``, which raises it for one that came before.
    """
    interrupts = Interrupts()
    signals = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    # Ignored signals, as by nohup, stay ignored.
    previous = {
        one: signal.getsignal(one) for one in signals if signal.getsignal(one) is not signal.SIG_IGN
    }
    for one in previous:
        signal.signal(one, interrupts.take)
    interrupts.has_come = OF_THE_PROCESS.has_come
    OF_THE_PROCESS.is_held = False
    try:
        yield interrupts
    finally:
        for one, action in previous.items():
            signal.signal(one, action)

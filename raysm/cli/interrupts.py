"""Signals that end a command: each is taken as Ctrl-C is, and never while a line is being shown."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupts", "interruptible"]

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, ``kill``, and a terminal that is closed; Windows has no SIGHUP."""


class Interrupts:
    """Raises KeyboardInterrupt where a signal comes; where it comes within ``held``, at its end."""

    def __init__(self) -> None:
        """Begin with none."""
        self._is_held = self._is_due = False

    def take(self, signum: int, frame: FrameType | None) -> None:
        """Take a signal, as Python calls a handler.

        Raises:
            KeyboardInterrupt: Nothing holds it back.
        """
        # The second one is not held: what is written may be stuck, in a pipe that nobody reads.
        if self._is_held and not self._is_due:
            self._is_due = True
            return
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold a signal back while the block runs.

        Raises:
            KeyboardInterrupt: One came meanwhile.
        """
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_due:
            self._is_due = False
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Take SIGTERM and a closed terminal like Ctrl-C while the block runs; yield what can hold them back."""
    interrupts = Interrupts()
    signals = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    # What somebody ignores on purpose, as nohup does, stays ignored.
    previous = {one: signal.getsignal(one) for one in signals if signal.getsignal(one) is not signal.SIG_IGN}
    for one in previous:
        signal.signal(one, interrupts.take)
    try:
        yield interrupts
    finally:
        for one, action in previous.items():
            signal.signal(one, action)

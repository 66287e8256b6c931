"""SIGTERM in the driver: the work ends as if it had raised ``SystemExit``, wherever it was."""

import signal
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Termination"]

AGAIN_S = 1.0


class Termination:
    """A context in which SIGTERM raises ``SystemExit(143)``, and that leaves with it whatever became of it on its way.

    A handler's exception can be lost: Python ignores it in a finaliser, and Ray, in the middle of a wait,
    turns it into another error, which looks like a failed task. So it is raised again every second until the context
    is left.
    """

    def __init__(self) -> None:
        self._before: list[tuple[signal.Signals, Any]] = []
        self._terminated = False

    def listen(self) -> None:
        """Take the signal; again, if a library has put its own handler in the place of this one."""
        for number in (signal.SIGTERM, signal.SIGALRM):
            before = signal.signal(number, self._leave)
            if before != self._leave and len(self._before) < 2:
                self._before.append((number, before))

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        raise SystemExit(128 + signal.SIGTERM)

    def __enter__(self) -> "Termination":
        """Listen."""
        self.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop listening, and raise ``SystemExit(143)`` if the signal came."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, before in self._before:
            signal.signal(number, before)
        if self._terminated and not isinstance(error, SystemExit):
            raise SystemExit(128 + signal.SIGTERM) from None

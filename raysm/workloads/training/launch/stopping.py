"""SIGTERM in the driver of a training: noted, and left to the one loop that waits for the workers."""

import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from raysm.workloads.training.launch.attempts import Stopped

__all__ = ["Stop", "grace_of_workers"]

MARGIN_S = 5.0
"""Of the driver's grace, what it keeps to bring the model together."""


class Stop:
    """Whether a stop was asked for; a context in which SIGTERM asks for one."""

    def __init__(self) -> None:
        """Not yet."""
        self.asked = False
        self._before: Any = signal.SIG_DFL

    def __enter__(self) -> "Stop":
        # What was there is put back: the driver's own handler ends the process.
        self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def listen(self) -> None:
        """Put the handler in place again: ``ray.init`` has put its own there."""
        signal.signal(signal.SIGTERM, self._ask)

    def sleep(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait.

        Raises:
            Stopped: A stop was asked for meanwhile.
        """
        until = clock() + seconds
        while clock() < until:
            if self.asked:
                raise Stopped(clean=False)
            # Python goes on sleeping after a handler has run: short naps hear of it.
            time.sleep(min(0.1, seconds))

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def grace_of_workers(grace_s: float) -> float:
    """Return the seconds that the workers have after SIGTERM, of the ``grace_s`` that the driver has."""
    return max(grace_s / 2, grace_s - MARGIN_S)

"""Events on the driver's output: where the job is, for whoever reads its log."""

import time
from collections.abc import Callable

from raysm.contract.events import Event, Progress

__all__ = ["EmitEvent", "ProgressThrottle"]

EmitEvent = Callable[[Event], None]
"""Where events go."""

# Five a second look like movement to who reads along; a line for each block would bury a log of many small ones.
INTERVAL_S = 0.2


class ProgressThrottle:
    """Announces the progress of one phase, at most five times a second, and its end."""

    def __init__(
        self, phase: str, total: int, unit: str, to: EmitEvent, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._phase, self._total, self._unit, self._to, self._clock = phase, total, unit, to, clock
        self._done = 0
        self._last = clock()
        self._tell()

    def add(self, done: int) -> None:
        """So much more is done."""
        self.reach(self._done + done)

    def reach(self, done: int) -> None:
        """So much is done in all."""
        if done == self._done:
            return
        self._done = done
        now = self._clock()
        # The end is always told, however soon it comes: displays close their bar on it.
        if self._done >= self._total or now - self._last >= INTERVAL_S:
            self._last = now
            self._tell()

    def _tell(self) -> None:
        self._to(Progress(phase=self._phase, done=self._done, total=self._total, unit=self._unit))

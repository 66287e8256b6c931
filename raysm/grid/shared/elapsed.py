"""A clock that never runs slow: by it a controller knows how long ago it was last sure of its lease."""

import time
from collections.abc import Callable

__all__ = ["Elapsed"]


class Elapsed:
    """Seconds that have passed, at least.

    A laptop that sleeps stops the monotonic clock of some systems, and the wall's clock may be set back: of the two the
    one that has gone further counts. Taken for too long, time costs a write; for too short, the grid.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """Take the clocks."""
        self._clocks = (steady, wall)
        self._before = [clock() for clock in self._clocks]
        self._sum = 0.0

    def __call__(self) -> float:
        """Return the seconds since it was made."""
        now = [clock() for clock in self._clocks]
        self._sum += max(0.0, *(after - before for after, before in zip(now, self._before, strict=True)))
        self._before = now
        return self._sum

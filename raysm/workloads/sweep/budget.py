"""The time that a sweep may take: over all of its runs, of which each but the last was interrupted.

What flows in are the seconds that are asked for and what the journal knows of earlier runs, what flows out is how many
are left; and, into the journal, how many have gone, every few seconds, since a run may be killed at any time.
"""

import time
from collections.abc import Callable
from typing import Any

from ray.tune import Callback

from raysm.workloads.sweep.journal import Journal

__all__ = ["KEPT_EVERY_S", "Budget"]

KEPT_EVERY_S = 10.0
"""A run that is killed may take so much more than its share; more often would be written to S3 for little."""


class Budget(Callback):  # type: ignore[misc]
    """How long a sweep has run, and may go on."""

    def __init__(self, total_s: float | None, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to count, from what the earlier runs took; None is without end."""
        self._total_s, self._journal, self._clock = total_s, journal, clock
        self._begun_s = clock() - (0.0 if total_s is None else journal.spent_s())
        self._kept_s = clock()

    @property
    def left_s(self) -> float | None:
        """What is left, less than 0 once it is over; None is without end."""
        return None if self._total_s is None else self._total_s - (self._clock() - self._begun_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.left_s is not None and self.left_s <= 0

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Keep it from time to time; Tune calls this several times a second."""
        if self._clock() - self._kept_s >= KEPT_EVERY_S:
            self.keep()

    def keep(self) -> None:
        """Write down what has been spent."""
        self._kept_s = self._clock()
        # Nobody asks for it otherwise.
        if self._total_s is not None:
            self._journal.keep_spent(self._kept_s - self._begun_s)

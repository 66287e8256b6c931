"""The clock of a service: AWS's is everybody's, that of the embedded SageMaker may run faster.

What flows in is when it began and how fast it runs, what flows out are moments of it. Both halves read the same one: a
grid's controller that compared its own moments with those of a service whose hours pass in minutes would take every job
for one of long ago.
"""

import time
from dataclasses import dataclass

from raysm.errors import InvalidRequest

__all__ = ["Clock"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Seconds since the epoch, as one service tells them.

    Raises:
        InvalidRequest: It would stand still, or run backwards.
    """

    speed: float = 1.0
    """Of its seconds, how many pass in one second."""
    begun_s: float = 0.0
    """When it began to run at this speed, in seconds since the epoch; before, it was everybody's."""

    def __post_init__(self) -> None:
        """Check the speed."""
        if not self.speed > 0:
            raise InvalidRequest(
                f"a clock's speed is above 0, got {self.speed:g}; 1 is everybody's, 60 an hour a minute"
            )

    def now(self) -> float:
        """Return the moment, in seconds since the epoch."""
        now_s = time.time()
        # Exactly the machine's own where it runs no faster: a sum of floats would differ in its last digits.
        return now_s if self.speed == 1.0 else self.begun_s + (now_s - self.begun_s) * self.speed

    def takes_s(self, seconds: float) -> float:
        """Return how many seconds of this machine so many of the clock's take."""
        return seconds / self.speed

    def sleep(self, seconds: float) -> None:
        """Let so many of the clock's seconds pass."""
        time.sleep(max(0.0, self.takes_s(seconds)))

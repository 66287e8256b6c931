"""How often a job is asked how it is. Pure: what flows in are seconds, what flows out are pauses."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Polling"]

MOST_BETWEEN_LOOKS_S = 20.0
"""Whoever follows a job of a hundred instances wants to see something all the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Polling:
    """How often a job is asked how it is: slower and slower, up to a limit."""

    first_s: float
    """Seconds until the second question."""
    most_s: float
    """Seconds between the later ones."""
    growth: float = 1.5
    """Each pause is so many times the one before."""
    patience_s: float = 300.0
    """Seconds for which the service may be away before whoever waits for a job is told."""
    late_s: float = 0.0
    """Seconds that the last lines of a job that has ended may need to reach the log service."""

    stream_s: float = 0.0
    """Seconds for each stream of a log between two looks at it."""

    def between_looks(self, pause_s: float, streams: int) -> float:
        """Return how many seconds to leave between two looks at a log of so many streams."""
        # Each stream takes a call, and CloudWatch limits these for the account: all who follow jobs share it.
        return max(pause_s, min(streams * self.stream_s, MOST_BETWEEN_LOOKS_S))

    def pauses(self) -> Iterator[float]:
        """Yield the pauses, in seconds, without end."""
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.most_s, pause * self.growth)

"""How often a job is asked how it is. Pure: what flows in are seconds, what flows out are pauses."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Pace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
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

    def pauses(self) -> Iterator[float]:
        """Yield the pauses, in seconds, without end."""
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.most_s, pause * self.growth)

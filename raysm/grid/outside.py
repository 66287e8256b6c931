"""The controller's calls: each under its bucket, each announced before and after, so that a test can end it there."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from raysm.errors import ServiceError
from raysm.grid.classify import of_refusal
from raysm.grid.limiter import Limiter
from raysm.grid.region import Region

__all__ = ["Outside", "Silence"]

T = TypeVar("T")


class Silence(Exception):
    """A region gave no answer that can be used: no call left, or the call failed. Nothing has ended by it.

    Attributes:
        reason: Why; empty where no call was made.
    """

    def __init__(self, reason: str = "") -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


class Outside:
    """All regions, behind their buckets."""

    def __init__(self, regions: Mapping[str, Region], limiter: Limiter, between: Callable[[str], None]) -> None:
        """Take the regions by name, and who is told of every call."""
        self.regions = dict(regions)
        self.limiter = limiter
        self._between = between

    def create(self, region: str, call: Callable[[Region], None]) -> None:
        """Call Create, whose token was taken before.

        Raises:
            ServiceError: It was refused, or its answer was lost.
        """
        self._between("before create")
        call(self.regions[region])
        self._between("after create")

    def ask(self, region: str, operation: str, now: float, call: Callable[[Region], T]) -> T:
        """Return the answer to a call that changes nothing, or that may be repeated.

        Raises:
            Silence: There is none.
        """
        if not self.limiter.take(region, operation, now):
            raise Silence
        return self.answer(region, operation, now, call)

    def answer(self, region: str, operation: str, now: float, call: Callable[[Region], T]) -> T:
        """Return the answer to a call of which the token was taken before.

        Raises:
            Silence: There is none.
        """
        self._between(f"before {operation}")
        try:
            answer = call(self.regions[region])
        except ServiceError as error:
            verdict = of_refusal(error)
            if verdict.ending.is_throttle:
                self.limiter.throttled(region, operation, now)
                # As if no call had been left: the region is well, and takes jobs; only this call comes later.
                raise Silence from error
            # An answer too, and a definite one: the caller's to judge.
            if not verdict.ending.closes_region:
                raise
            raise Silence(verdict.reason) from error
        self._between(f"after {operation}")
        return answer

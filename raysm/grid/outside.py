"""The controller's calls: each under its bucket, each announced before and after, so that a test can end it there.

Those of one region are made in their order, those of several side by side.
"""

import functools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from raysm.errors import ServiceError
from raysm.grid.database import Turns
from raysm.grid.endings import classify_refusal
from raysm.grid.limiter import Limiter
from raysm.grid.region import Region

__all__ = ["Outside", "Silence"]

T = TypeVar("T")

LATEST = 8
"""Calls of Create of which the quickest is taken, and not one of fewer: the first of all makes clients and folders."""


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

    def __init__(
        self, regions: Mapping[str, Region], limiter: Limiter, between: Callable[[str], None], turns: Turns
    ) -> None:
        """Take the regions by name, who is told of every call, and the turns of those who use the store."""
        self.regions = dict(regions)
        self.limiter = limiter
        self._between = between
        self._turns = turns
        self._now = 0.0
        self._behind_s = 0.0
        # Seconds from the beginning of a step to the answer to a Create, by region.
        self._leads: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST))

    def begin(self, now: float) -> None:
        """Begin a step, of whose moment all that it decides is."""
        self._now = now
        # By the difference: who gives a step its moment may have another clock than the service.
        self._behind_s = self.limiter.moment() - now if self.limiter.moment is not None else 0.0

    def side_by_side(
        self, items: Iterable[T], region_of: Callable[[T], str], work: Callable[[str, list[T]], object]
    ) -> None:
        """Do a work for each region, which makes calls of this region alone.

        Args:
            items: What there is to do, in whatever regions; what is in none of this grid's is left as it is.
            region_of: Returns the region of an item.
            work: Called with a region and its items, in their order.

        Raises:
            Exception: What the first of them raised.
        """
        by_region: defaultdict[str, list[T]] = defaultdict(list)
        for item in items:
            by_region[region_of(item)].append(item)
        works = [functools.partial(work, region, own) for region, own in by_region.items() if region in self.regions]
        if self.limiter.moment is None:
            # Of a clock that stands still while calls are made nothing is won, and each run is to be the same.
            for of_region in works:
                of_region()
        else:
            self._turns.each(works)

    def create(self, region: str, call: Callable[[Region], None]) -> None:
        """Call Create, whose token was taken before.

        Raises:
            ServiceError: It was refused, or its answer was lost.
        """
        self._between("before create")
        with self._turns.away():
            call(self.regions[region])
        if self.limiter.moment is not None:
            # With its files a call takes a while, and of four regions' the last one is made seconds after the first.
            now, leads = self.limiter.moment() - self._behind_s, self._leads[region]
            leads.append(now - self._now)
            # The next one will take as long to get there: who sets out when its token is there is late each time.
            self.limiter.made(region, "create", now, ahead_s=min(leads) if len(leads) == LATEST else 0.0)
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
            with self._turns.away():
                answer = call(self.regions[region])
        except ServiceError as error:
            verdict = classify_refusal(error)
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

"""Where a task may run, and who says where it does: the seam between the controller and the placement.

The controller asks ``Placement.choose`` for each task that it could send now, with what it knows of the market; it
tells ``learn`` each attempt that has ended. Both are pure arithmetic: nothing here calls anybody.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from raysm.grid.attempt import Attempt
from raysm.grid.task import Task

__all__ = [
    "NO_PRICE",
    "OUTPACED",
    "OUTPACED_S",
    "Choice",
    "Market",
    "Offer",
    "Outlook",
    "Place",
    "Placement",
    "Quota",
    "place_of",
]


PROBES = 4
"""The part of what a place had by which it is tried for more, a quarter: so a region that fills up again is found out
within a few starts, and one that does not refuses few."""

NO_PRICE = "its price is unknown, and the grid has a budget"
"""Why an offer is passed over where ``Market.needs_price``."""

OUTPACED = "the others will have done all that waits before a job that begins here has ended"
OUTPACED_S = 60.0
"""Why a place is passed over at the end of a grid, and for how many seconds: then some of the others have ended."""


# In an order, so that whatever goes over places does it alike each time.
@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Place:
    """What prices, quotas and blocks are of; how many instances a job takes there is its own affair."""

    region: str
    """``us-east-1``."""
    instance_type: str
    """``ml.g5.xlarge``."""
    spot: bool = False
    """Whether it is spare capacity, which has a quota of its own."""

    def __str__(self) -> str:
        """Return it for people: ``ml.g5.xlarge in us-east-1 (spot)``."""
        return f"{self.instance_type} in {self.region}{' (spot)' if self.spot else ''}"


def place_of(attempt: Attempt) -> Place:
    """Return the place of an attempt."""
    return Place(region=attempt.region, instance_type=attempt.instance_type, spot=attempt.spot)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A place for a task, and what it costs there."""

    place: Place
    """Where."""
    count: int = 1
    """Instances of the job."""
    usd_per_hour: float | None = None
    """On-demand price of one instance: what spot is billed by, too, for fewer seconds. None is unknown, never 0."""
    price_version: str = ""
    """Which table of prices says so; empty where none does."""
    expected_s: float | None = None
    """Seconds that the task will take there; None is unknown."""
    alternatives: tuple["Offer", ...] = ()
    """Of the same region, the best first: the service itself takes the first type that it has; empty is this alone."""

    @property
    def most_usd_per_hour(self) -> float | None:
        """The dearest price of all of them; None where one is unknown."""
        prices = [each.usd_per_hour for each in (self, *self.alternatives)]
        return max((usd for usd in prices if usd is not None), default=None) if None not in prices else None

    @property
    def choice(self) -> str:
        """What an attempt keeps of it: prices by type, in order; empty where there is no choice."""
        if not self.alternatives:
            return ""
        return json.dumps({each.place.instance_type: each.usd_per_hour for each in (self, *self.alternatives)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Where a task goes now, or why nowhere."""

    offer: Offer | None = None
    """None is nowhere now."""
    again_s: float | None = None
    """Without an offer: when to ask again, on the clock that was given; None is never: the task is impossible."""
    stuck: Mapping[Place, float] = field(default_factory=dict)
    """Without an offer: since when each of its places has taken nothing; empty where one of them does."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why not, by the places that were passed over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """How many instances the account may have in a place."""

    limit: int
    """Of all its jobs together."""
    used_by_others: int = 0
    """By jobs that are not this grid's, when it was last heard of."""
    source: str = "given"
    """``api``, ``error`` (learned from a refusal's words) or ``given``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """What is left of a grid that comes to its end; an empty one says nothing."""

    waiting: int = 0
    """Rows that are to be placed."""
    takes_s: Mapping[Place, float] = field(default_factory=dict)
    """From Create to the end of a job, a unit of its work (``Task.work``), where one was seen."""
    free_s: Mapping[Place, Sequence[float]] = field(default_factory=dict)
    """When the open jobs of a place will end, each of which gives room to another one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Market:
    """What the controller knows of all places, at one moment."""

    in_use: Mapping[Place, int] = field(default_factory=dict)
    """Instances of this grid's open attempts."""
    blocked: Mapping[Place, float] = field(default_factory=dict)
    """Until when a place is left alone, on the clock that was given."""
    held: Mapping[Place, int] = field(default_factory=dict)
    """Instances that a place had for this grid when it last had no more; where none is named it never refused."""
    quotas: Mapping[Place, Quota] = field(default_factory=dict)
    """Where one is known."""
    closed: Mapping[str, float] = field(default_factory=dict)
    """Regions that take no job now, and until when: refused credentials, or no Create left in the bucket."""
    refusing: Mapping[Place, float] = field(default_factory=dict)
    """Since when a place has done nothing but refuse, of those where nothing of this grid runs."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """Since when a region has not answered, or let nobody in."""
    needs_price: bool = False
    """Whether a place without a price takes no job: there is a budget, of which nobody could tell what is left."""

    outlook: Outlook = field(default_factory=Outlook)
    """Of the rows that wait."""

    def bars(self, place: Place, count: int, now: float) -> tuple[float | None, str] | None:
        """Return until when, and why, a place takes no job of ``count`` instances; None where it takes one.

        The moment is None where no waiting helps: the quota is smaller than the job.
        """
        # First: for what never fits no moment would be right.
        quota = self.quotas.get(place)
        if quota is not None and quota.limit < count:
            return None, f"the quota is {quota.limit} of {place.instance_type}, and the job takes {count}"
        for until, why in (
            (self.closed.get(place.region), "the region takes no job"),
            # What it has given it has: when a job ends there the next one may begin at once.
            (None if self._is_held(place, count) else self.blocked.get(place), "it refused"),
        ):
            if until is not None and until > now:
                return until, f"{why} for another {until - now:.0f} s"
        most = self.held.get(place)
        if most is not None and self.in_use.get(place, 0) + count > most + max(count, most // PROBES):
            # All that wait were sent anew at the end of each pause: of 3,672 jobs 76 ran.
            return now + 60, f"it had no more than {most} for this grid, and is tried with a few"
        if quota is not None and self.in_use.get(place, 0) + quota.used_by_others + count > quota.limit:
            # Nobody tells when a job of another ends: a minute is what its own sweep needs to see one of ours do so.
            return now + 60, f"all of the quota of {quota.limit} is in use"
        return None

    def outpaces(self, places: Collection[Place], place: Place, task: Task, now: float) -> bool:
        """Return whether other places will have done all that waits before a job that begins now in one has ended.

        Args:
            places: Those that the task may go to as well.
            place: The one.
            task: The row; those behind it are taken to be as long.
            now: Seconds since the epoch.
        """
        takes_s, waiting = self.outlook.takes_s, self.outlook.waiting
        if place not in takes_s or waiting < 1:
            return False
        last_s, done = now + takes_s[place] * task.work, 0
        for other in places:
            # By those that are faster alone: of places that are alike each would be passed over for the others, always.
            if takes_s.get(other, math.inf) < takes_s[place] and other.region not in self.silent:
                each_s = max(1.0, takes_s[other] * task.work)
                done += sum(
                    max(0, int((last_s - free_s) / each_s)) for free_s in self._free_s(other, each_s, task, now)
                )
        # To begin it nevertheless was tried: of 20 grids two took 1.2 and 1.3 times as long as they had to, for a last
        # row in the slowest region.
        return done >= waiting

    def _free_s(self, place: Place, takes_s: float, task: Task, now: float) -> list[float]:
        """Return when each of the jobs that a place has for this grid gives room to another one."""
        ends = self.outlook.free_s.get(place, ())
        in_use, count = self.in_use.get(place, 0), task.count or 1
        # Those that were placed in this very step, and the room of those that have just ended.
        placed = [now + takes_s] * (in_use // count - len(ends))
        return [*ends, *placed, *[now] * (max(0, self.held.get(place, 0) - in_use) // count)]

    def stuck(self, places: Collection[Place]) -> Mapping[Place, float]:
        """Return since when each of these has taken nothing; none of them where one does."""
        moments = {place: self._refuses_since(place) for place in places}
        known_moments = {place: moment for place, moment in moments.items() if moment is not None}
        return known_moments if len(known_moments) == len(moments) else {}

    def refused_s(self, place: Place, now: float) -> float:
        """Return for how long a place has taken nothing: about as long as it will go on, for all that one knows."""
        # Of a lack that began at a moment nobody knows the mean, the time that it has lasted is the best guess of what
        # is left of it. Only its pause was tried, an hour at most: rows waited for days, an hour at a time.
        since = self._refuses_since(place)
        return 0.0 if since is None else max(0.0, now - since)

    def _refuses_since(self, place: Place) -> float | None:
        moments = (self.refusing.get(place), self.silent.get(place.region))
        return min((moment for moment in moments if moment is not None), default=None)

    def _is_held(self, place: Place, count: int) -> bool:
        return self.in_use.get(place, 0) + count <= self.held.get(place, 0)


class Placement(Protocol):
    """Says where tasks go."""

    def choose(self, task: Task, attempts: Sequence[Attempt], market: Market, now: float) -> Choice:
        """Return where ``task`` goes now.

        Args:
            task: The row.
            attempts: Its attempts that have ended, the earliest first.
            market: What is known of all places.
            now: Seconds since the epoch, on the clock that the controller is given.
        """

    def learn(self, task: Task, attempt: Attempt) -> None:
        """Take note of an attempt that has ended."""

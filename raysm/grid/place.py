"""Places where rows run, and what is known of them: the interface between the controller and the placement.

The controller calls ``Placement.choose`` for each row that it could send now, and ``learn`` for each attempt that has
ended. Nothing here calls the service or the store.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from raysm.grid.task import Attempt, Task

PROBES = 4
"""A place that ran out of instances is tried for a quarter more than it had: it is found out within a few starts when
it has more again, and refuses few jobs while it has not."""

NO_PRICE = "its price is unknown, and the grid has a budget"

OUTPACED = "the others will have done all that waits before a job that begins here has ended"
OUTPACED_S = 60.0
"""For how long a place is passed over at the end of a grid: by then some jobs of the others have ended."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Place:
    """A market in one region: prices, quotas and backoffs belong to it."""

    region: str
    instance_type: str
    spot: bool = False

    def __str__(self) -> str:
        return f"{self.instance_type} in {self.region}{' (spot)' if self.spot else ''}"


def place_of(attempt: Attempt) -> Place:
    """Return the place of an attempt."""
    return Place(region=attempt.region, instance_type=attempt.instance_type, spot=attempt.spot)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A place for a row, and its price."""

    place: Place
    count: int = 1
    """Instances of the job, unless the row says otherwise."""
    usd_per_hour: float | None = None
    """On-demand price of one instance, which also bills spot seconds; None is unknown, never 0."""
    price_version: str = ""
    expected_s: float | None = None
    """Expected duration of the row there."""
    alternatives: tuple["Offer", ...] = ()
    """Other types in the same region, the best first, among which the service chooses; empty is no choice."""

    @property
    def most_usd_per_hour(self) -> float | None:
        """The highest price of all types; None if one is unknown."""
        prices = [each.usd_per_hour for each in (self, *self.alternatives)]
        return max((usd for usd in prices if usd is not None), default=None) if None not in prices else None

    @property
    def choice(self) -> str:
        """Prices by type as JSON, for ``Attempt.choice``; empty without alternatives."""
        if not self.alternatives:
            return ""
        return json.dumps({each.place.instance_type: each.usd_per_hour for each in (self, *self.alternatives)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Where a row goes now, or why nowhere."""

    offer: Offer | None = None
    again_s: float | None = None
    """Without an offer, when to ask again; None is never, since the row is impossible."""
    stuck: Mapping[Place, float] = field(default_factory=dict)
    """Without an offer, since when each of its places has taken nothing; empty if one of them does."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why places were passed over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """How many instances the account may have in a place."""

    limit: int
    used_by_others: int = 0
    """Instances of jobs outside this grid, when the quota was last read."""
    source: str = "given"
    """``api``, ``error`` (from a refusal's words) or ``given``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """The last rows of a grid; empty earlier than that."""

    waiting: int = 0
    """Rows that wait."""
    takes_s: Mapping[Place, float] = field(default_factory=dict)
    """Seconds from Create to the end of a job, per unit of ``Task.work``, where one was seen."""
    free_s: Mapping[Place, Sequence[float]] = field(default_factory=dict)
    """When the open jobs of a place will end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Market:
    """What the controller knows of all places at one moment."""

    in_use: Mapping[Place, int] = field(default_factory=dict)
    """Instances of this grid's open attempts."""
    blocked: Mapping[Place, float] = field(default_factory=dict)
    """End of the backoff of places that refused."""
    held: Mapping[Place, int] = field(default_factory=dict)
    """Instances that a place had for this grid when it last ran out; places that never did are missing."""
    quotas: Mapping[Place, Quota] = field(default_factory=dict)
    closed: Mapping[str, float] = field(default_factory=dict)
    """Until when regions take no job: denied, silent, or no Create left in the token bucket."""
    refusing: Mapping[Place, float] = field(default_factory=dict)
    """Since when a place has only refused, if no job of this grid runs there."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """Since when a region has not answered, or denied access."""
    needs_price: bool = False
    """Whether places without a price take no job, since the grid has a budget."""
    outlook: Outlook = field(default_factory=Outlook)

    def bars(self, place: Place, count: int, now: float) -> tuple[float | None, str] | None:
        """Return until when, and why, a place takes no job of ``count`` instances; None if it takes one.

        The time is None if waiting does not help, since the quota is smaller than the job.
        """
        quota, in_use, held = self.quotas.get(place), self.in_use.get(place, 0), self.held.get(place)
        if quota is not None and quota.limit < count:
            return None, f"the quota is {quota.limit} of {place.instance_type}, and the job takes {count}"
        # A place keeps the instances that it gave: when a job ends there, the next one may start at once.
        blocked_s = None if in_use + count <= (held or 0) else self.blocked.get(place)
        for until, why in ((self.closed.get(place.region), "the region takes no job"), (blocked_s, "it refused")):
            if until is not None and until > now:
                return until, f"{why} for another {until - now:.0f} s"
        if held is not None and in_use + count > held + max(count, held // PROBES):
            # Otherwise all waiting rows are sent at the end of each backoff: of 3,672 such jobs 76 ran.
            return now + 60, f"it had no more than {held} for this grid, and is tried with a few"
        if quota is not None and in_use + quota.used_by_others + count > quota.limit:
            return now + 60, f"all of the quota of {quota.limit} is in use"
        return None

    def outpaces(self, places: Collection[Place], place: Place, task: Task, now: float) -> bool:
        """Return whether faster places will have done all waiting rows before a job that starts now in ``place`` ends.

        Without this, 2 of 20 simulated grids took 1.2 and 1.3 times as long, for a last row in the slowest region.

        Args:
            places: The places that the row may go to.
            place: One of them.
            task: The row; the others are assumed to be as long.
            now: Seconds since the epoch.
        """
        takes_s, waiting = self.outlook.takes_s, self.outlook.waiting
        if place not in takes_s or waiting < 1:
            return False
        last_s, done = now + takes_s[place] * task.work, 0
        for other in places:
            # Only strictly faster ones: places that are alike would be passed over for each other forever.
            if takes_s.get(other, math.inf) < takes_s[place] and other.region not in self.silent:
                each_s = max(1.0, takes_s[other] * task.work)
                ends, in_use, count = self.outlook.free_s.get(other, ()), self.in_use.get(other, 0), task.count or 1
                # Also the jobs that were placed in this step, and the room of those that have just ended.
                placed = [now + each_s] * (in_use // count - len(ends))
                free = [now] * (max(0, self.held.get(other, 0) - in_use) // count)
                done += sum(max(0, int((last_s - free_s) / each_s)) for free_s in (*ends, *placed, *free))
        return done >= waiting

    def stuck(self, places: Collection[Place]) -> Mapping[Place, float]:
        """Return since when each of these places has taken nothing; nothing if one of them does."""
        moments = {place: self._refuses_since(place) for place in places}
        known = {place: moment for place, moment in moments.items() if moment is not None}
        return known if len(known) == len(moments) else {}

    def refused_s(self, place: Place, now: float) -> float:
        """Return for how long a place has taken nothing: the best guess of how much longer it will not.

        With the backoff alone as the guess, an hour at most, rows waited for days, an hour at a time.
        """
        since = self._refuses_since(place)
        return 0.0 if since is None else max(0.0, now - since)

    def _refuses_since(self, place: Place) -> float | None:
        moments = (self.refusing.get(place), self.silent.get(place.region))
        return min((moment for moment in moments if moment is not None), default=None)


class Placement(Protocol):
    """Decides where rows go."""

    def choose(self, task: Task, attempts: Sequence[Attempt], market: Market, now: float) -> Choice:
        """Return where ``task`` goes now, given its ended attempts, the earliest first."""

    def learn(self, task: Task, attempt: Attempt) -> None:
        """Learn from an attempt that has ended."""

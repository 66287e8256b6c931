"""Places where rows run, and their market as the controller knows it.

Nothing here calls the service or the store.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from raysm.features.grid.attempt import Attempt
from raysm.features.grid.row import Row

PROBE_DIVISOR = 4
"""A place that ran out of instances is tried with a quarter more than it held (1/PROBE_DIVISOR):
new capacity is found within a few starts, and few jobs are refused before."""

NO_PRICE = "its price is unknown, and the grid has a budget"

OUTPACED = "faster places will finish all waiting rows before a job started here would end"
OUTPACED_S = 60.0
"""Seconds for which a place is passed over at the end of a grid; meanwhile some jobs of faster
places end."""

ASK_AGAIN_S = 60.0
"""Seconds after which a row asks again if it waits for the end of a job, whose time is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Place:
    region: str
    instance_type: str
    spot: bool = False

    def __str__(self) -> str:
        return f"{self.instance_type} in {self.region}{' (spot)' if self.spot else ''}"


def place_of(attempt: Attempt) -> Place:
    return Place(region=attempt.region, instance_type=attempt.instance_type, spot=attempt.spot)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    place: Place
    count: int = 1
    usd_per_hour: float | None = None
    """On-demand price of one instance with its volume, also billed per spot second; None, not 0, if
    unknown."""
    price_version: str = ""
    alternatives: tuple["Offer", ...] = ()
    """Other types in the same region that the service may choose, the best first."""

    @property
    def most_usd_per_hour(self) -> float | None:
        """The highest price of all types; None if one is unknown."""
        highest = 0.0
        for each in (self, *self.alternatives):
            if each.usd_per_hour is None:
                return None
            highest = max(highest, each.usd_per_hour)
        return highest

    @property
    def choice(self) -> str:
        """Prices by type as JSON, for ``Attempt.choice``; empty without alternatives."""
        if not self.alternatives:
            return ""
        return json.dumps(
            {each.place.instance_type: each.usd_per_hour for each in (self, *self.alternatives)}
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    offer: Offer | None = None
    ask_at_s: float | None = None
    """If there is no offer, when to ask again; None if the row is impossible."""
    stuck: Mapping[Place, float] = field(default_factory=dict)
    """If there is no offer, since when each of the row's places has taken no job; empty if one
    takes jobs."""
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    limit: int
    used_by_others: int = 0
    """Instances of jobs outside this grid, when the quota was last read."""
    source: str = "given"
    """``api``, ``error`` (from a refusal's words) or ``given``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """Forecast for the last rows of a grid; empty while many rows wait."""

    waiting: int = 0
    takes_s: Mapping[Place, float] = field(default_factory=dict)
    """Seconds from Create to the end of a job, per unit of ``Row.work``, for places where a job is
    done."""
    free_s: Mapping[Place, Sequence[float]] = field(default_factory=dict)
    """When the open jobs of a place will end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Market:
    in_use: Mapping[Place, int] = field(default_factory=dict)
    """Instances of this grid's open attempts."""
    blocked: Mapping[Place, float] = field(default_factory=dict)
    """End of the backoff of places that refused."""
    held: Mapping[Place, int] = field(default_factory=dict)
    """Instances that a place had for this grid when it last ran out; places that never did are
    missing."""
    quotas: Mapping[Place, Quota] = field(default_factory=dict)
    closed: Mapping[str, float] = field(default_factory=dict)
    """Time until which a region takes no job: access is denied, it does not answer, or its token
    bucket is empty."""
    refusing: Mapping[Place, float] = field(default_factory=dict)
    """Time since which a place has refused all jobs, if no job of this grid runs there."""
    silent: Mapping[str, float] = field(default_factory=dict)
    """Time since which a region has not answered, or has denied access."""
    needs_price: bool = False
    """True if the grid has a budget: places without a price then take no job."""
    outlook: Outlook = field(default_factory=Outlook)

    def bars(self, place: Place, count: int, now: float) -> tuple[float | None, str] | None:
        """Return until when, and why, a place takes no job of ``count`` instances, or None.

        None means that it takes one.

        The time is None if waiting does not help, since the quota is smaller than the job.
        """
        quota = self.quotas.get(place)
        in_use = self.in_use.get(place, 0)
        held = self.held.get(place)
        if quota is not None and quota.limit < count:
            return (
                None,
                f"the quota is {quota.limit} of {place.instance_type}, and the job takes {count}",
            )
        # A place keeps the instances that it gave: when a job ends there, the next one may start at
        # once.
        blocked_s = None if in_use + count <= (held or 0) else self.blocked.get(place)
        for until, why in (
            (self.closed.get(place.region), "the region takes no job"),
            (blocked_s, "it refused"),
        ):
            if until is not None and until > now:
                return until, f"{why} for another {until - now:.0f} s"
        if held is not None and in_use + count > held + max(count, held // PROBE_DIVISOR):
            # Otherwise each end of a backoff would send all waiting rows: only 76 of 3,672 such
            # jobs ran.
            return (
                now + ASK_AGAIN_S,
                f"it ran out at {held} instances, so only a few more are tried",
            )
        if quota is not None and in_use + quota.used_by_others + count > quota.limit:
            return now + ASK_AGAIN_S, f"all of the quota of {quota.limit} is in use"
        return None

    def outpaces(self, places: Collection[Place], place: Place, row: Row, now: float) -> bool:
        """Return whether faster places would finish all waiting rows first.

        First means before a job that starts now in ``place`` ends.

        Without this, 2 of 20 simulated grids took 1.2 and 1.3 times as long, for a last row in the
        slowest region.
        """
        takes_s = self.outlook.takes_s
        waiting = self.outlook.waiting
        if place not in takes_s or waiting < 1:
            return False
        last_s = now + takes_s[place] * row.work
        done = 0
        for other in places:
            # Only strictly faster places count: equally fast ones would pass each other over
            # forever.
            if takes_s.get(other, math.inf) < takes_s[place] and other.region not in self.silent:
                each_s = max(1.0, takes_s[other] * row.work)
                ends = self.outlook.free_s.get(other, ())
                in_use = self.in_use.get(other, 0)
                count = row.count or 1
                # Count the jobs placed in this step, too, and the room of those that have just
                # ended.
                placed = [now + each_s] * (in_use // count - len(ends))
                free = [now] * (max(0, self.held.get(other, 0) - in_use) // count)
                done += sum(
                    max(0, int((last_s - free_s) / each_s)) for free_s in (*ends, *placed, *free)
                )
        return done >= waiting

    def stuck(self, places: Collection[Place]) -> Mapping[Place, float]:
        """Return since when each of these places has taken no job; empty if one takes jobs."""
        moments = {place: self._refuses_since(place) for place in places}
        known = {place: moment for place, moment in moments.items() if moment is not None}
        return known if len(known) == len(moments) else {}

    def refused_s(self, place: Place, now: float) -> float:
        """Return for how long a place has taken no job.

        This is the best guess of how much longer it will take none.

        When the backoff was the guess, at most an hour, rows waited for days, an hour at a time.
        """
        since = self._refuses_since(place)
        return 0.0 if since is None else max(0.0, now - since)

    def _refuses_since(self, place: Place) -> float | None:
        moments = (self.refusing.get(place), self.silent.get(place.region))
        return min((moment for moment in moments if moment is not None), default=None)

"""How often each operation of the service may be called: token buckets in one small database for all grids of a host.

The rates are the account's, whichever grid or process calls. A refusal for too many calls halves the rate, quiet time
lets it grow again (AIMD), up to its cap; calls of the account's other users so slow ours down, and not the reverse.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["RATES", "Bucket", "Limiter", "Rate"]

FLOOR = 0.1
"""Calls a second, below which no bucket falls: a grid must not stand still for ever."""

GROWTH = 0.1
"""Of the cap, by which a rate grows again a quiet minute, where nothing is known of what the service allows."""

SLOW_GROWTH = 0.05
"""Of the rate, by which it grows a quiet minute once it was measured: fast enough to notice that others have gone, and
so slow that of some twenty calls one is refused. A tenth was tried: at 0.2 calls a second 9 of 100 were lost by it."""

ENOUGH = 5
"""Answers between two refusals of which a rate can be told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """How often an operation may be called."""

    per_s: float
    """Calls a second, at most."""
    burst: float = 5.0
    """Calls that may come at once after a while without any."""


RATES: Mapping[str, Rate] = {
    # In practice about 1/s; sagemaker-python-sdk issue 645 is throttled at 5 in parallel.
    "create": Rate(per_s=1.0),
    # 2/s an account and region, not adjustable (deepracer-on-aws issue 87): half of it, as others list too.
    "list": Rate(per_s=1.0),
    "describe": Rate(per_s=4.0),
    "stop": Rate(per_s=1.0),
    # GetMetricData has 50/s an account and region, which every dashboard of the account shares; one asks for 500 jobs.
    "metrics": Rate(per_s=1.0),
}
"""By operation, each of a region of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Calls that may be made now, and how fast more come."""

    rate: float
    """Calls a second at present."""
    tokens: float
    """Calls that may be made at ``at_s``."""
    at_s: float
    """When that was, on the clock that is given."""
    is_measured: bool = False
    """Whether the service was seen to allow about this rate."""
    answered: int = 0
    """Calls since the last refusal."""
    refused_s: float = 0.0
    """When that was; before the first, when the bucket was made."""

    def at(self, now: float, most: Rate) -> "Bucket":
        """Return the bucket as it is at ``now``."""
        # A clock that was set back gives nothing, and takes nothing: else an hour would pass without a call.
        passed = max(0.0, now - self.at_s)
        growth = SLOW_GROWTH * self.rate if self.is_measured else GROWTH * most.per_s
        rate = min(most.per_s, self.rate + passed / 60 * growth)
        return replace(self, rate=rate, tokens=min(max(1.0, most.burst), self.tokens + passed * rate), at_s=now)

    def taken(self, calls: int) -> "Bucket":
        """Return the bucket after so many calls were taken from it; a negative number was given back."""
        return replace(self, tokens=self.tokens - calls, answered=self.answered + calls)

    def refused(self, now: float) -> "Bucket":
        """Return the bucket after a refusal: as fast as calls were answered since the last one, or half as fast.

        Only to halve, and grow again, as networks do it, uses three quarters of a rate that never changes.
        """
        passed, answered = now - self.refused_s, self.answered - 1
        is_measured = answered >= ENOUGH and passed > 0
        # Never below the half: who called seldom was answered seldom, which says nothing of what is allowed.
        rate = max(self.rate / 2, min(self.rate, answered / passed)) if is_measured else self.rate / 2
        # The service's own bucket lacked a part of a call, which one it did not say.
        tokens = 0.5 if is_measured else 0.0
        return replace(self, rate=max(FLOOR, rate), tokens=tokens, is_measured=is_measured, answered=0, refused_s=now)


class Limiter:
    """The buckets of all regions and operations, by ``REGION/OPERATION``."""

    def __init__(self, path: Path | str, rates: Mapping[str, Rate] = RATES, *, account: str = "") -> None:
        """Open the database.

        Args:
            path: Of the file, which other processes may use at the same time; ``:memory:`` is this one's alone.
            rates: By operation.
            account: Whose rates they are: each account has its own.
        """
        self._rates = rates
        self._account = account
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute("PRAGMA journal_mode = WAL")
        # What a crash of the machine loses are tokens of the last seconds.
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS call_rate (name TEXT PRIMARY KEY, rate REAL NOT NULL, tokens REAL NOT NULL, "
            "at_s REAL NOT NULL, is_measured INTEGER NOT NULL, answered INTEGER NOT NULL, refused_s REAL NOT NULL) "
            "STRICT"
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def take(self, region: str, operation: str, now: float, most: int = 1) -> int:
        """Take up to ``most`` calls; return how many may be made, which may be none."""
        with self._bucket(region, operation, now) as (bucket, keep):
            # Sums of parts of a second: 0.1 ten times is a little less than 1.
            granted = min(most, int(bucket.tokens + 1e-9))
            keep(bucket.taken(granted))
        return granted

    def calls(self, region: str, operation: str, now: float) -> int:
        """Return how many calls may be made now; another process may take them first."""
        return int(self._at(region, operation, now).tokens + 1e-9)

    def wait_s(self, region: str, operation: str, now: float) -> float:
        """Return the seconds until a call may be made; 0 is now."""
        bucket = self._at(region, operation, now)
        return max(0.0, 1 - bucket.tokens - 1e-9) / bucket.rate

    def give_back(self, region: str, operation: str, calls: int, now: float) -> None:
        """Return calls that were taken and not made."""
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.taken(-calls))

    def throttled(self, region: str, operation: str, now: float) -> None:
        """Take note that the service refused a call because there were too many."""
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.refused(now))

    @contextlib.contextmanager
    def _bucket(self, region: str, operation: str, now: float) -> "Iterator[tuple[Bucket, _Keep]]":
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._at(region, operation, now), _Keep(self._database, self._name(region, operation))
        finally:
            self._database.execute("COMMIT")

    def _at(self, region: str, operation: str, now: float) -> Bucket:
        most, name = self._rates[operation], self._name(region, operation)
        row = self._database.execute(
            "SELECT rate, tokens, at_s, is_measured, answered, refused_s FROM call_rate WHERE name = ?", (name,)
        ).fetchone()
        # A new one is not full: a controller that is killed and started again every second must not burst.
        new = Bucket(rate=most.per_s, tokens=1.0, at_s=now, refused_s=now)
        return (_stored(*row) if row else new).at(now, most)

    def _name(self, region: str, operation: str) -> str:
        return f"{self._account}/{region}/{operation}"


@dataclass(frozen=True, slots=True)
class _Keep:
    database: sqlite3.Connection
    name: str

    def __call__(self, bucket: Bucket) -> None:
        values = (bucket.rate, bucket.tokens, bucket.at_s, bucket.is_measured, bucket.answered, bucket.refused_s)
        self.database.execute("INSERT OR REPLACE INTO call_rate VALUES (?, ?, ?, ?, ?, ?, ?)", (self.name, *values))


def _stored(rate: float, tokens: float, at_s: float, is_measured: int, answered: int, refused_s: float) -> Bucket:
    return Bucket(
        rate=rate, tokens=tokens, at_s=at_s, is_measured=bool(is_measured), answered=answered, refused_s=refused_s
    )

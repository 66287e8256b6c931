"""Token buckets for the calls of each operation, in one small database for all grids of a machine.

The rates are the account's, shared by all grids and processes. Throttling halves a rate until
enough answered calls have measured the allowed rate. From then on each throttled call lowers the
rate a little, and time without throttling raises it again up to its cap. So raysm slows down for
other users of the account, and does not slow them down.
"""

import contextlib
import functools
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

FLOOR = 0.1
"""Lowest rate of a bucket in calls a second, so that a grid never stands still."""

GROWTH = 0.1
"""Part of the cap by which an unmeasured rate grows in a minute without throttling."""

ACCELERATION = 0.003
"""A measured rate grows by ``exp(ACCELERATION * minutes²)`` since the last throttled call: a third
of a percent in the first minute, twofold after a quarter of an hour. With steady growth of 0.05 a
minute 9 of 100 calls were throttled, at 0.2 calls a second."""

STEEPEST = 50.0
"""Largest exponent: a clock may be set forward by a year."""

LEAST_CUT = 0.03
"""Smallest part by which a throttled call slows a measured rate down."""

ENOUGH = 5
"""Answers between two throttled calls that suffice to measure a rate."""

FEW = 2
"""Answers between two throttled calls below which a measured rate counts as unmeasured again.
Without this limit, a service with bursts and 0.2 calls a second throttled one call of ten: the
saved burst hid the real rate."""

REMEMBERED = 8
"""Most answers that still count after a throttled call, at most a third of those before it, since
two throttled calls may be close by chance. Without it the second call cut the rate by a quarter,
and a region used 0.88 of the allowed rate instead of 0.92."""

SPAN_S = 1.0
"""Seconds of a measured rate that a bucket can save up. With more, the call after a late one comes
too early; with less, a controller that steps every quarter of a second is slow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    per_s: float
    burst: float = 5.0


RATES: Mapping[str, Rate] = {
    # In practice about 1/s; sagemaker-python-sdk issue 645 is throttled at 5 in parallel.
    "create": Rate(per_s=1.0),
    # 2/s for account and region, not adjustable (deepracer-on-aws issue 87); half of it is left to
    # other programs.
    "list": Rate(per_s=1.0),
    "describe": Rate(per_s=4.0),
    "stop": Rate(per_s=1.0),
    # GetMetricData: 50/s for account and region, shared with the account's dashboards; one call
    # reads 500 jobs.
    "metrics": Rate(per_s=1.0),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    rate: float
    tokens: float
    at_s: float
    is_measured: bool = False
    """True if throttled calls have shown that the service allows about this rate."""
    answered: int = 0
    """Calls since the last throttled one, and a few of those before it."""
    refused_s: float = 0.0
    """When the last call was throttled; if none was, when the bucket was created."""

    def at(self, now: float, cap: Rate) -> "Bucket":
        # A clock that was set back neither gives nor takes tokens.
        passed = max(0.0, now - self.at_s)
        rate = min(
            cap.per_s,
            self._grown(now) if self.is_measured else self.rate + passed / 60 * GROWTH * cap.per_s,
        )
        # Not replace, which takes twice as long: a step reads buckets ten times.
        return Bucket(
            rate=rate,
            tokens=min(self._room(rate, cap), self.tokens + passed * rate),
            at_s=now,
            is_measured=self.is_measured,
            answered=self.answered,
            refused_s=self.refused_s,
        )

    def _room(self, rate: float, cap: Rate) -> float:
        return max(1.0, min(cap.burst, rate * SPAN_S) if self.is_measured else cap.burst)

    def _grown(self, now: float) -> float:
        was, quiet = (
            max(0.0, moment - self.refused_s) / 60 for moment in (min(self.at_s, now), now)
        )
        # With a difference of squares, the result does not depend on how often the bucket is read.
        return self.rate * math.exp(min(STEEPEST, ACCELERATION * (quiet**2 - was**2)))

    def taken(self, calls: int) -> "Bucket":
        """Return the bucket after ``calls`` were taken from it, or given back if negative."""
        return replace(self, tokens=self.tokens - calls, answered=self.answered + calls)

    def made(self, cap: Rate, ahead_s: float = 0.0) -> "Bucket":
        """Return the bucket after a call that was made ``ahead_s`` or more after taking its token.

        The service's own bucket was full and saved nothing in that time: without this correction,
        the call after a late one comes too early.
        """
        return replace(
            self, tokens=min(self.tokens, self._room(self.rate, cap) - 1 + self.rate * ahead_s)
        )

    def refused(self, now: float) -> "Bucket":
        """Return the bucket after a throttled call.

        It is slower by half a call per answers since the last throttled call.

        Halving alone, as TCP does, uses three quarters of a constant rate, and taking the mean rate
        of the answered calls five sixths.
        """
        answered = self.answered - 1
        is_measured = answered >= (FEW if self.is_measured else ENOUGH)
        cut = max(LEAST_CUT, 0.5 / answered) if is_measured else 0.5
        # The service's own bucket lacked an unknown part of a token.
        tokens = 0.5 if is_measured else 0.0
        rate = max(FLOOR, self.rate * (1 - cut))
        left = min(REMEMBERED, answered // 3) if is_measured else 0
        return replace(
            self, rate=rate, tokens=tokens, is_measured=is_measured, answered=left, refused_s=now
        )


class Limiter:
    def __init__(
        self,
        path: Path | str,
        rates: Mapping[str, Rate] = RATES,
        *,
        account: str = "",
        moment: Callable[[], float] | None = None,
    ) -> None:
        self.moment = moment
        self._rates = rates
        self._account = account
        self._database = sqlite3.connect(
            path, isolation_level=None, timeout=30, check_same_thread=False
        )
        self._database.execute("PRAGMA journal_mode = WAL")
        # A crash of the machine loses only the tokens of the last seconds.
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS call_rate (name TEXT PRIMARY KEY, rate REAL NOT NULL, "
            "tokens REAL NOT NULL, at_s REAL NOT NULL, is_measured INTEGER NOT NULL, "
            "answered INTEGER NOT NULL, refused_s REAL NOT NULL) STRICT"
        )

    def close(self) -> None:
        self._database.close()

    def take(self, region: str, operation: str, now: float, limit: int = 1) -> int:
        """Take up to ``limit`` calls; return how many were granted, possibly 0."""
        with self._bucket(region, operation, now) as (bucket, keep):
            # Rounding: the sum of ten times 0.1 is a little less than 1.
            granted = min(limit, int(bucket.tokens + 1e-9))
            keep(bucket.taken(granted))
        return granted

    def calls(self, region: str, operation: str, now: float) -> int:
        return int(self._at(region, operation, now).tokens + 1e-9)

    def wait_s(self, region: str, operation: str, now: float, calls: int = 1) -> float:
        bucket = self._at(region, operation, now)
        return max(0.0, calls - bucket.tokens - 1e-9) / bucket.rate

    def give_back(self, region: str, operation: str, calls: int, now: float) -> None:
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.taken(-calls))

    def made(self, region: str, operation: str, now: float, ahead_s: float = 0.0) -> None:
        """Record the answer to a call whose token was taken at least ``ahead_s`` earlier."""
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.made(self._rates[operation], ahead_s))

    def throttled(self, region: str, operation: str, now: float) -> None:
        """Slow an operation down, since the service refused a call because there were too many."""
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.refused(now))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Open a transaction in which no other process takes a call; an exception rolls it back."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextlib.contextmanager
    def _bucket(
        self, region: str, operation: str, now: float
    ) -> Iterator[tuple[Bucket, Callable[[Bucket], None]]]:
        """Yield a bucket and a function that stores the changed bucket, in a transaction."""
        name = self._name(region, operation)
        with contextlib.nullcontext() if self._database.in_transaction else self.together():
            yield self._at(region, operation, now), functools.partial(self._keep, name)

    def _keep(self, name: str, bucket: Bucket) -> None:
        values = (
            bucket.rate,
            bucket.tokens,
            bucket.at_s,
            bucket.is_measured,
            bucket.answered,
            bucket.refused_s,
        )
        self._database.execute(
            "INSERT OR REPLACE INTO call_rate (name, rate, tokens, at_s, is_measured, answered, "
            "refused_s) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (name, *values),
        )

    def _at(self, region: str, operation: str, now: float) -> Bucket:
        cap = self._rates[operation]
        name = self._name(region, operation)
        row = self._database.execute(
            "SELECT rate, tokens, at_s, is_measured, answered, refused_s "
            "FROM call_rate WHERE name = ?",
            (name,),
        ).fetchone()
        if row is None:
            # Not full: a controller that is killed and restarted every second must not send bursts.
            return Bucket(rate=cap.per_s, tokens=1.0, at_s=now, refused_s=now)
        rate, tokens, at_s, is_measured, answered, refused_s = row
        if at_s > now:
            # The clock was set back. From now on tokens come again, also if nobody takes one before
            # that time.
            self._database.execute("UPDATE call_rate SET at_s = ? WHERE name = ?", (now, name))
        stored = Bucket(
            rate=rate,
            tokens=tokens,
            at_s=at_s,
            is_measured=bool(is_measured),
            answered=answered,
            refused_s=refused_s,
        )
        return stored.at(now, cap)

    def _name(self, region: str, operation: str) -> str:
        return f"{self._account}/{region}/{operation}"

"""How often each operation of the service may be called: token buckets in one small database for all grids of a host.

The rates are the account's, whichever grid or process calls. Refusals for too many calls halve a rate until enough are
answered to tell what is allowed; from then on a refusal slows it down a little, and quiet time lets it grow again, the
faster the longer it lasts, up to its cap. Calls of the account's other users so slow ours down, and not the reverse.
"""

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["RATES", "Bucket", "Limiter", "Rate"]

FLOOR = 0.1
"""Calls a second, below which no bucket falls: a grid must not stand still for ever."""

GROWTH = 0.1
"""Of the cap, by which a rate grows again a quiet minute, where nothing is known of what the service allows."""

ACCELERATION = 0.003
"""How a measured rate grows: by ``exp(ACCELERATION * minutes²)`` since the refusal. It so stays where it was for some
minutes, a third of a percent in the first, and is twice as fast after a quarter of an hour, where others have gone. A
steady growth was tried: 0.05 a minute and more lost 9 of 100 calls by refusals, at 0.2 calls a second."""

STEEPEST = 50.0
"""Of which the exponential function is taken at most: a clock may be set on by a year."""

LEAST_CUT = 0.03
"""Of a measured rate, by which a refusal slows it down at least: so near to what is allowed it was."""

ENOUGH = 5
"""Answers between two refusals of which a rate can be told."""

FEW = 2
"""Answers between two refusals that are enough where the rate is known already; who then had fewer begins anew. Without
it a service that allows bursts, of 0.2 calls a second, refused one of ten: each time the rate was halved, and grew fast
again, while the saved up burst hid where it had to end."""

REMEMBERED = 8
"""Answers before a refusal that count on, a third of what there were: by chance two refusals follow each other closely
where a rate is barely too high. Forgotten, the second one took a quarter of it away, which took eight minutes to come
back: of four regions one used 0.88 of what there is, and not 0.92."""

SPAN_S = 1.0
"""Seconds of a measured rate that may be saved up. With more, a call that comes late is followed by one too early, and
refused: a service at its limit has saved up nothing for us. With less, who looks every quarter of a second is slow."""


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
    """Calls since the last refusal, and a few of those before it."""
    refused_s: float = 0.0
    """When that was; before the first, when the bucket was made."""

    def at(self, now: float, most: Rate) -> "Bucket":
        """Return the bucket as it is at ``now``."""
        # A clock that was set back gives nothing, and takes nothing: else an hour would pass without a call.
        passed = max(0.0, now - self.at_s)
        rate = min(most.per_s, self._grown(now) if self.is_measured else self.rate + passed / 60 * GROWTH * most.per_s)
        return replace(self, rate=rate, tokens=min(self._room(rate, most), self.tokens + passed * rate), at_s=now)

    def _room(self, rate: float, most: Rate) -> float:
        """Return the calls that may be saved up at a rate."""
        return max(1.0, min(most.burst, rate * SPAN_S) if self.is_measured else most.burst)

    def _grown(self, now: float) -> float:
        was, quiet = (max(0.0, moment - self.refused_s) / 60 for moment in (min(self.at_s, now), now))
        # The difference of squares: however often anybody looks meanwhile, it comes to the same.
        return self.rate * math.exp(min(STEEPEST, ACCELERATION * (quiet**2 - was**2)))

    def taken(self, calls: int) -> "Bucket":
        """Return the bucket after so many calls were taken from it; a negative number was given back."""
        return replace(self, tokens=self.tokens - calls, answered=self.answered + calls)

    def made(self, most: Rate, ahead_s: float = 0.0) -> "Bucket":
        """Return the bucket as it is now after a call has been made only now whose token was taken earlier.

        The service's own bucket was full until then, and has saved up nothing for the wait: without this a call that
        is made late within a step is followed by one too early, and refused.

        Args:
            most: The most that its operation may be called.
            ahead_s: Seconds after which a call is made at the earliest whose token is taken.
        """
        return replace(self, tokens=min(self.tokens, self._room(self.rate, most) - 1 + self.rate * ahead_s))

    def refused(self, now: float) -> "Bucket":
        """Return the bucket after a refusal: slowed down by half a call of those that were answered since the last one.

        Only to halve, and grow again, as networks do it, uses three quarters of a rate that never changes; and to take
        the mean rate of the answered calls five sixths, as that is what the bucket had grown from.
        """
        answered = self.answered - 1
        is_measured = answered >= (FEW if self.is_measured else ENOUGH)
        cut = max(LEAST_CUT, 0.5 / answered) if is_measured else 0.5
        # The service's own bucket lacked a part of a call, which one it did not say.
        tokens = 0.5 if is_measured else 0.0
        rate = max(FLOOR, self.rate * (1 - cut))
        left = min(REMEMBERED, answered // 3) if is_measured else 0
        return replace(self, rate=rate, tokens=tokens, is_measured=is_measured, answered=left, refused_s=now)


class Limiter:
    """The buckets of all regions and operations, by ``REGION/OPERATION``."""

    def __init__(
        self,
        path: Path | str,
        rates: Mapping[str, Rate] = RATES,
        *,
        account: str = "",
        moment: Callable[[], float] | None = None,
    ) -> None:
        """Open the database.

        Args:
            path: Of the file, which other processes may use at the same time; ``:memory:`` is this one's alone.
            rates: By operation.
            account: Whose rates they are: each account has its own.
            moment: Returns seconds of the service's clock, which goes on while calls are made; None is a clock that
                stands still meanwhile.
        """
        self.moment = moment
        self._rates = rates
        self._account = account
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
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

    def wait_s(self, region: str, operation: str, now: float, calls: int = 1) -> float:
        """Return the seconds until a call may be made, or the last one of several; 0 is now."""
        bucket = self._at(region, operation, now)
        return max(0.0, calls - bucket.tokens - 1e-9) / bucket.rate

    def give_back(self, region: str, operation: str, calls: int, now: float) -> None:
        """Return calls that were taken and not made."""
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.taken(-calls))

    def made(self, region: str, operation: str, now: float, ahead_s: float = 0.0) -> None:
        """Take note that a call whose token was taken earlier was answered now.

        Args:
            region: Where.
            operation: Which.
            now: Seconds since the epoch.
            ahead_s: Seconds for which a call is on its way at least, from the token to the answer.
        """
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.made(self._rates[operation], ahead_s))

    def throttled(self, region: str, operation: str, now: float) -> None:
        """Take note that the service refused a call because there were too many; one without a rate is not slowed."""
        # S3's, of which a grid makes two a minute and job: it refuses whoever asks while it rearranges a bucket.
        if operation not in self._rates:
            return
        with self._bucket(region, operation, now) as (bucket, keep):
            keep(bucket.refused(now))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Within it, no other process takes a call: what is taken one by one is kept once."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._database.execute("COMMIT")

    @contextlib.contextmanager
    def _bucket(self, region: str, operation: str, now: float) -> "Iterator[tuple[Bucket, _Keep]]":
        with contextlib.nullcontext() if self._database.in_transaction else self.together():
            yield self._at(region, operation, now), _Keep(self._database, self._name(region, operation))

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

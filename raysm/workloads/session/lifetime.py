"""When a session ends by itself: idle for too long, or out of budget.

Jobs of the session's Ray and kernels of its Jupyter servers keep it busy, as calls do. All times are those of the
head's monotonic clock, so that no client's clock matters.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from raysm.contract.connections import checked_connector, open_to_own

__all__ = ["ATTACHED_S", "Elsewhere", "End", "Lifetime", "Looks", "RayJobs", "Rules", "Seen", "duration", "seen_in"]

ATTACHED_S = 30.0
"""A client is attached for so long after each heartbeat. An open connection says nothing: one whose laptop sleeps stays
open, and kept machines running for nobody (sagemaker-ssh-helper)."""

WARNING_S = 300.0
"""How long before the end it is told; of short times, a quarter of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What was asked for."""

    idle_s: float
    """Without a call, with a client attached."""
    idle_detached_s: float
    """Without a call and without a client."""
    usd_per_hour: float | None = None
    """Of all instances."""
    budget_usd: float | None = None
    """For all of the session."""


@dataclass(frozen=True, slots=True)
class End:
    """An end that comes if nothing happens until then."""

    at_s: float
    """When, by the head's monotonic clock."""
    why: str
    """For people."""
    warn_at_s: float
    """When it is told."""


class Lifetime:
    """What has happened so far, as far as it counts for the end."""

    def __init__(self, rules: Rules, now_s: float, uptime_s: float = 0.0) -> None:
        """Begin.

        Args:
            rules: What was asked for.
            now_s: Now.
            uptime_s: For how long the head has been there already: that is paid for too.
        """
        self.rules = rules
        # Before the driver began: the instances were billed while the cluster formed.
        self._began_s = now_s - uptime_s
        self._active_s = now_s
        self._heard_s: dict[str, float] = {}
        self._kept_until_s = now_s

    def active(self, at_s: float) -> None:
        """Something was worked on until ``at_s``."""
        self._active_s = max(self._active_s, at_s)

    def heard(self, client: str, now_s: float) -> None:
        """A client says that it is there."""
        # Who comes anew finds all of the time that attached clients have.
        if not self.is_attached(now_s):
            self.active(now_s)
        self._heard_s[client] = now_s

    def left(self, client: str, now_s: float) -> None:
        """A client says that it goes."""
        if self._heard_s.pop(client, None) is not None:
            self.active(now_s)

    def keep(self, until_s: float) -> None:
        """Put off the idle end until ``until_s``."""
        self._kept_until_s = max(self._kept_until_s, until_s)

    def clients(self, now_s: float) -> int:
        """Return how many clients are attached."""
        # Those that went silent stay in the table: when they were heard last decides when the idle time began.
        return sum(now_s - heard_s <= ATTACHED_S for heard_s in self._heard_s.values())

    def is_attached(self, now_s: float) -> bool:
        """Whether any client is."""
        return self.clients(now_s) > 0

    def uptime_s(self, now_s: float) -> float:
        """Return for how long the head has been there."""
        return now_s - self._began_s

    def usd(self, now_s: float) -> float | None:
        """Return what it has cost; None where no price is known."""
        price = self.rules.usd_per_hour
        return None if price is None else price * self.uptime_s(now_s) / 3600

    def end(self, now_s: float, *, is_busy: bool) -> End | None:
        """Return the end that comes first; None where none is in sight.

        Args:
            now_s: Now.
            is_busy: Whether anything is worked on: that is never idle, and may yet be too expensive.
        """
        ends = [] if is_busy else [self._idle_end(now_s)]
        spent = self._budget_end()
        if spent is not None:
            ends.append(spent)
        # Whichever comes first: an idle session may run out of its budget, and a busy one of nothing else.
        return min(ends, key=lambda end: end.at_s, default=None)

    def _idle_end(self, now_s: float) -> End:
        if self.is_attached(now_s):
            begin_s, time_s, who = self._active_s, self.rules.idle_s, "a client attached"
        else:
            # From the last sign of anybody, not from the 30 s later at which that became sure.
            heard_s = max(self._heard_s.values(), default=self._active_s)
            begin_s, time_s, who = max(self._active_s, heard_s), self.rules.idle_detached_s, "no client attached"
        at_s = max(begin_s + time_s, self._kept_until_s)
        # Of the whole wait, the part that was wished for by keep() included.
        warn_s = min(WARNING_S, (at_s - begin_s) / 4)
        return End(at_s, f"idle for {duration(at_s - begin_s)} with {who}", at_s - warn_s)

    def _budget_end(self) -> End | None:
        price, budget = self.rules.usd_per_hour, self.rules.budget_usd
        if price is None or budget is None:
            return None
        time_s = budget / price * 3600
        at_s = self._began_s + time_s
        return End(at_s, f"its budget of {budget:g} USD is spent", at_s - min(WARNING_S, time_s / 4))


def duration(seconds: float) -> str:
    """Return a time for people: ``45 s``, ``5 min``, ``1.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# https://docs.ray.io/en/latest/cluster/running-applications/job-submission/doc/ray.job_submission.JobStatus.html
ACTIVE = ("PENDING", "RUNNING")
# The dashboard is on this host: whatever takes longer is as good as none, and a look is due every few seconds.
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has shown."""

    running: int
    """How many run."""
    idle_s: float | None
    """Seconds since the last one ended; 0 while one runs, None where there was none."""


class RayJobs:
    """Asks the Jobs API of this head."""

    def __init__(self, port: int, token: bytes) -> None:
        """Ask nothing yet.

        Args:
            port: Of Ray's dashboard.
            token: The job's.
        """
        self._address, self._token = f"http://127.0.0.1:{port}/api/jobs/", token.decode().strip()

    async def look(self) -> Seen:
        """Look; where nobody answers, nobody can have submitted anything either."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            connector = checked_connector(open_to_own)
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
                async with session.get(self._address, headers=headers) as answer:
                    return seen_in(await answer.json() if answer.status == 200 else (), time.time())
        # The dashboard may be starting, or may not have been asked for at all, or another user's process has its port.
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return Seen(0, None)


def seen_in(jobs: Iterable[Mapping[str, Any]], now_s: float) -> Seen:
    """Return what the rows of the Jobs API show.

    Args:
        jobs: All of them; drivers that nobody submitted, the session's own too, do not count.
        now_s: Seconds since the epoch, of the clock that wrote the rows.
    """
    # The other type is DRIVER: the session's own is one, which runs as long as the session does.
    submitted = [job for job in jobs if job.get("type") == "SUBMISSION"]
    running = sum(job.get("status") in ACTIVE for job in submitted)
    if running:
        return Seen(running, 0.0)
    # Milliseconds, as Ray has them.
    ends = [job["end_time"] / 1000 for job in submitted if job.get("end_time")]
    # Not below 0: the clock may have been set meanwhile.
    return Seen(0, max(0.0, now_s - max(ends)) if ends else None)


class Looks(Protocol):
    """Something that works by itself."""

    async def look(self) -> Seen:
        """Return how much runs, and since when nothing does."""


class Elsewhere:
    """All of it together."""

    def __init__(self, *looks: Looks) -> None:
        self._looks = looks

    async def look(self) -> Seen:
        """Return how much runs of all, and since when nothing does of any."""
        sights = await asyncio.gather(*(each.look() for each in self._looks))
        # The latest end counts: what ended an hour ago says nothing of what ended just now.
        idle = [each.idle_s for each in sights if each.idle_s is not None]
        return Seen(sum(each.running for each in sights), min(idle, default=None))

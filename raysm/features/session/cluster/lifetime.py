"""When a session ends by itself: idle for too long, or out of budget.

Jobs of the session's Ray and kernels of its Jupyter servers keep it busy, as calls do. All times
are those of the head's monotonic clock, so that no client's clock matters.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from raysm.core.protocol.connections import checked_connector, open_to_own
from raysm.core.request.durations import brief_duration

ATTACHED_S = 30.0
"""A client stays attached for this time after each heartbeat. An open connection is not enough,
because that of a sleeping laptop stays open; in sagemaker-ssh-helper this kept unused machines
running."""

WARNING_S = 300.0
"""How long before the end clients are warned, but at most a quarter of the whole time."""


AHEAD_S = 120.0
"""A session ends itself this long before the service's limit, but at most half the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LifetimeRules:
    """The limits that the user requested: idle times with and without a client, and the cost."""

    idle_s: float
    idle_detached_s: float
    usd_per_hour: float | None = None
    budget_usd: float | None = None
    limit_s: float | None = None
    """Seconds after which the service stops the job because the budget is spent."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the session if nothing happens before, and when to warn the clients.

    Times are by the head's monotonic clock.
    """

    at_s: float
    why: str
    warn_at_s: float
    can_be_kept: bool = True
    """True if ``keep`` puts it off."""


class Lifetime:
    def __init__(self, rules: LifetimeRules, now_s: float, began_s: float | None = None) -> None:
        """Count the idle time from ``now_s``, and the cost from ``began_s``, by default ``now_s``.

        The instances are billed while the cluster forms, before the driver starts.
        """
        self.rules = rules
        self._started_s = now_s if began_s is None else began_s
        self._last_activity_s = now_s
        self._last_heartbeat_s: dict[str, float] = {}
        self._kept_until_s = now_s

    def note_activity(self, at_s: float) -> None:
        self._last_activity_s = max(self._last_activity_s, at_s)

    def note_heartbeat(self, client: str, now_s: float) -> None:
        # The first client after a time without any restarts the idle time.
        if not self.count_clients(now_s):
            self.note_activity(now_s)
        self._last_heartbeat_s[client] = now_s

    def note_departure(self, client: str, now_s: float) -> None:
        if self._last_heartbeat_s.pop(client, None) is not None:
            self.note_activity(now_s)

    def keep(self, until_s: float) -> None:
        self._kept_until_s = max(self._kept_until_s, until_s)

    def count_clients(self, now_s: float) -> int:
        # Silent clients stay in the table, because the detached idle time starts at the last
        # heartbeat.
        return sum(now_s - last_s <= ATTACHED_S for last_s in self._last_heartbeat_s.values())

    def uptime_s(self, now_s: float) -> float:
        return now_s - self._started_s

    def usd(self, now_s: float) -> float | None:
        price = self.rules.usd_per_hour
        return None if price is None else price * self.uptime_s(now_s) / 3600

    def find_end(self, now_s: float, *, is_busy: bool) -> End | None:
        ends = [] if is_busy else [self._find_idle_end(now_s)]
        spent = self._find_budget_end()
        if spent is not None:
            ends.append(spent)
        return min(ends, key=lambda end: end.at_s, default=None)

    def _find_idle_end(self, now_s: float) -> End:
        if self.count_clients(now_s):
            start_s = self._last_activity_s
            time_s = self.rules.idle_s
            who = "a client attached"
        else:
            # The idle time starts at the last heartbeat, not ATTACHED_S later.
            last_s = max(self._last_heartbeat_s.values(), default=self._last_activity_s)
            start_s = max(self._last_activity_s, last_s)
            time_s = self.rules.idle_detached_s
            who = "no client attached"
        at_s = max(start_s + time_s, self._kept_until_s)
        # A quarter of the whole wait, including the extension by keep().
        warn_s = min(WARNING_S, (at_s - start_s) / 4)
        return End(at_s, f"idle for {brief_duration(at_s - start_s)} with {who}", at_s - warn_s)

    def _find_budget_end(self) -> End | None:
        price = self.rules.usd_per_hour
        budget = self.rules.budget_usd
        if price is None or budget is None:
            return None
        time_s = budget / price * 3600
        if self.rules.limit_s is not None:
            # The service has counted since before the head began, and its stop gives no reason.
            time_s = min(time_s, max(self.rules.limit_s - AHEAD_S, self.rules.limit_s / 2))
        at_s = self._started_s + time_s
        return End(
            at_s,
            f"its budget of {budget:g} USD is spent",
            at_s - min(WARNING_S, time_s / 4),
            can_be_kept=False,
        )


# https://docs.ray.io/en/latest/cluster/running-applications/job-submission/doc/ray.job_submission.JobStatus.html
ACTIVE = ("PENDING", "RUNNING")
# The dashboard is on this host, so a slow answer is treated like no answer; the next poll follows
# in seconds.
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Activity:
    running: int
    idle_s: float | None
    """Seconds since the last one ended; 0 while one runs, None if there was none."""


async def fetch_ray_activity(port: int, token: bytes) -> Activity:
    """Return the activity of jobs submitted to the head's Ray.

    If Ray's dashboard, at ``port``, does not answer, the result is that of no job.
    """
    headers = {"Authorization": f"Bearer {token.decode().strip()}"}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        connector = checked_connector(open_to_own)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            async with session.get(f"http://127.0.0.1:{port}/api/jobs/", headers=headers) as answer:
                return summarize_jobs(
                    await answer.json() if answer.status == 200 else (), time.time()
                )
    # The dashboard may be starting or disabled, or another user's process may have its port.
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return Activity(0, None)


def summarize_jobs(jobs: Iterable[Mapping[str, Any]], now_s: float) -> Activity:
    """Summarize the rows of the Jobs API.

    ``now_s`` is by the clock that wrote them, in seconds since the epoch.
    """
    # The other type is DRIVER, such as the session's own driver.
    submitted = [job for job in jobs if job.get("type") == "SUBMISSION"]
    running = sum(job.get("status") in ACTIVE for job in submitted)
    if running:
        return Activity(running, 0.0)
    # Ray's times are in milliseconds.
    ends = [job["end_time"] / 1000 for job in submitted if job.get("end_time")]
    # Not below 0, because the clock may have been set meanwhile.
    return Activity(0, max(0.0, now_s - max(ends)) if ends else None)

"""Jobs that were submitted to the Ray of a session: they keep it busy as its own calls do.

What flows in is what Ray's Jobs API answers, what flows out is whether any runs, and since when none does.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from raysm.contract.connections import checked_connector, open_to_own

__all__ = ["RayJobs", "Seen", "seen_in"]

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

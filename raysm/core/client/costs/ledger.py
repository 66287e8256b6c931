"""The costs of the jobs that a user has sent from this machine, by day, for ``max_cost_per_day``.

One SQLite file in raysm's home, ``costs.db``, has a row for each job. A job that runs counts with
the most that it can cost in a day, so that it cannot break the cap of a later day either.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

from raysm.core.client.costs.bill import dollars
from raysm.core.client.costs.cap import STOP_GRACE_S, Cap, limit_of, warm_seconds
from raysm.core.client.job.chain import Chain
from raysm.core.client.job.description import Description
from raysm.core.client.service import Service
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.job_api import api_of
from raysm.core.protocol.names import counted
from raysm.core.request import AWS, JobRequest, Target
from raysm.errors import InvalidRequest, JobNotFound, ServiceError

FILE = "costs.db"
DAY_S = 86_400
KEPT_S = 60 * DAY_S
"""Rows of older jobs are removed: a job runs for 28 days at most, and may wait for some more."""
BUSY_S = 30.0
"""How long another process may hold the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What is known of the cost of one job, or of one job and its follow-ups."""

    job: str
    api: str
    target: str
    """Kind and profile of its target: the job of another profile cannot be described."""
    region: str
    sent_s: float
    usd_per_hour: float
    """USD for all instances."""
    most_usd: float
    """USD that it can cost at most."""
    started_s: float | None = None
    ended_s: float | None = None
    usd: float | None = None
    """USD that it has cost; None until it has ended."""

    @property
    def most_usd_of_day(self) -> float:
        """What it can cost in a day at most."""
        return min(self.most_usd, self.usd_per_hour * DAY_S / 3600)

    def usd_on(self, day_s: float) -> float:
        """Return what it costs on the day that begins at ``day_s``, at most if it has not ended."""
        if self.usd is None:
            return self.most_usd_of_day
        begun_s = self.sent_s if self.started_s is None else self.started_s
        ended_s = begun_s if self.ended_s is None else self.ended_s
        if ended_s <= begun_s:
            return self.usd if day_s <= begun_s < day_s + DAY_S else 0.0
        inside_s = min(ended_s, day_s + DAY_S) - max(begun_s, day_s)
        return self.usd * max(0.0, inside_s) / (ended_s - begun_s)


COLUMNS = tuple(field.name for field in fields(Entry))


@dataclass(frozen=True, slots=True)
class Day:
    """The costs of one day, UTC."""

    usd: float
    jobs: int
    """Jobs that cost something on it."""


class Ledger:
    """The file of one home; several processes may use it at a time."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        self._clock = clock

    def day(self) -> Day:
        """Return the costs of today."""
        with self._transaction() as database:
            return self._day(database)

    def reserve(self, entry: Entry, max_usd: float | None) -> None:
        """Add a job that is about to be sent.

        Raises:
            InvalidRequest: The jobs of the day could cost more than ``max_usd``.
        """
        with self._transaction() as database:
            today = self._day(database)
            usd = entry.usd_on(self._today_s)
            if max_usd is not None and today.usd + usd > max_usd:
                raise InvalidRequest(
                    f"max_cost_per_day={max_usd:g}: this job could cost {dollars(usd)} in a day, "
                    f"and {dollars(max(0.0, max_usd - today.usd))} are left today (UTC): "
                    f"{counted(today.jobs, 'job')} of yours cost up to {dollars(today.usd)}",
                    remedy=(
                        "give it a smaller --max-cost or --max-runtime, stop another job, or wait"
                    ),
                )
            database.execute("DELETE FROM job WHERE sent_s < ?", (self._clock() - KEPT_S,))
            self._write(database, entry)

    def release(self, job: str) -> None:
        """Remove a job that was not sent after all."""
        with self._transaction() as database:
            database.execute("DELETE FROM job WHERE job = ?", (job,))

    def settle(self, service: Service) -> None:
        """Ask the service which jobs have ended, and note their cost; others stay at their most."""
        with self._transaction() as database:
            running = [
                entry
                for entry in self._entries(database)
                if entry.usd is None and entry.target == name_of(service.target)
            ]
        found = [_settled(entry, service, self._clock()) for entry in running]
        ended = [entry for entry in found if entry is not None]
        if ended:
            with self._transaction() as database:
                for entry in ended:
                    self._write(database, entry)

    @property
    def _today_s(self) -> float:
        return self._clock() // DAY_S * DAY_S

    def _day(self, database: sqlite3.Connection) -> Day:
        costs = [entry.usd_on(self._today_s) for entry in self._entries(database)]
        return Day(sum(costs), sum(usd > 0 for usd in costs))

    def _entries(self, database: sqlite3.Connection) -> list[Entry]:
        rows = database.execute(f"SELECT {', '.join(COLUMNS)} FROM job")
        return [Entry(**dict(zip(COLUMNS, row, strict=True))) for row in rows]

    def _write(self, database: sqlite3.Connection, entry: Entry) -> None:
        marks = ", ".join("?" * len(COLUMNS))
        database.execute(
            f"INSERT OR REPLACE INTO job ({', '.join(COLUMNS)}) VALUES ({marks})", astuple(entry)
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        path = private_folder(self._home) / FILE
        try:
            with contextlib.closing(
                sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            ) as database:
                # At once, so that two processes cannot both see room for their jobs.
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS job (job TEXT PRIMARY KEY, api TEXT, "
                    "target TEXT, region TEXT, sent_s REAL, usd_per_hour REAL, most_usd REAL, "
                    "started_s REAL, ended_s REAL, usd REAL)"
                )
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise ServiceError(
                f"the file of costs {path} cannot be used: {error}",
                remedy="remove it; jobs that were sent before do not count then",
            ) from error


def name_of(target: Target) -> str:
    """Return what the jobs of one account have in common."""
    profile = target.profile if isinstance(target, AWS) else None
    return f"{target.kind}/{profile or ''}"


def most_usd(request: JobRequest, usd_per_hour: float, cap: Cap | None) -> float:
    """Return what a job and its follow-ups can cost at most, with stops and warm pool."""
    limits = request.limits
    keep_alive_s = request.cluster.keep_alive_s
    runs = 1 + limits.max_restarts
    # A follow-up that comes too late does not take the warm pool over.
    seconds = runs * (limits.max_runtime_s + STOP_GRACE_S + keep_alive_s)
    usd = usd_per_hour * seconds / 3600
    return usd if cap is None else min(usd, cap.max_cost)


def _is_left(job: Description, now_s: float) -> bool:
    """Return True if an ended job has had no follow-up for a day."""
    return (
        job.status.is_terminal and job.ended is not None and now_s - job.ended.timestamp() > DAY_S
    )


def _settled(entry: Entry, service: Service, now_s: float) -> Entry | None:
    """Return the entry of an ended job, with its cost; None if it runs or has no description."""
    try:
        of_region = service
        if entry.region != service.region:
            of_region = service.at(service.target.in_region(entry.region))
        chain = Chain(entry.job, service=of_region, api=api_of(entry.api))
        if not chain.ended(send=False) and not _is_left(chain.known(), now_s):
            return None
        jobs = chain.descriptions()
    except JobNotFound:
        jobs = []
    except (ServiceError, InvalidRequest):
        return None
    if not jobs or len(jobs) < len(chain.names):
        # It was removed, or one of its follow-ups: what it has cost is not known, and not 0.
        return replace(entry, usd=entry.most_usd)
    seconds = sum(map(_billed_s, jobs)) + sum(warm_seconds(job.answer) for job in jobs)
    times = [job.started.timestamp() for job in jobs if job.started is not None]
    ends = [job.ended.timestamp() for job in jobs if job.ended is not None]
    return replace(
        entry,
        started_s=min(times, default=None),
        ended_s=max(ends, default=None),
        usd=min(entry.most_usd, entry.usd_per_hour * seconds / 3600),
    )


def _billed_s(job: Description) -> float:
    if job.billable_s is not None:
        return job.billable_s
    if job.started is None:
        return 0.0
    if job.ended is None:
        return limit_of(job.answer) + STOP_GRACE_S
    return max(0.0, (job.ended - job.started).total_seconds())

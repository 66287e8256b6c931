"""The table's rows: the jobs that the service lists, each read once after its end, and as often as asked before it."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from raysm.client.costs.prices import price_of
from raysm.client.experiments.cache import Cache
from raysm.client.experiments.experiment import Experiment
from raysm.client.experiments.pages import listed
from raysm.client.experiments.reading import read_job
from raysm.client.job.description import Status
from raysm.client.job.records import RUN
from raysm.client.service import Service
from raysm.client.storage.s3 import in_parallel
from raysm.contract.job_api import APIS, JobApi, api_of
from raysm.errors import InvalidRequest

__all__ = ["Choice", "cache_of", "experiments", "moment", "with_trials"]

SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)")
SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

AT_ONCE = 100
"""Jobs that are read, and kept, before the next ones are listed: a page of the service's list."""


class _Named(NamedTuple):
    """One job of the service's list."""

    name: str
    arn: str
    created_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Which jobs a table is of."""

    project: str | None = None
    """Only those of this project; None is any, and jobs of others too."""
    task: str | None = None
    """Only runs of this task."""
    status: tuple[Status, ...] = ()
    """Only those that are so; none is any."""
    since: datetime | None = None
    """Only those that were sent then or later."""
    contains: str | None = None
    """Part of the name."""
    limit: int = 100
    """At most so many, the latest first."""

    def takes(self, row: Experiment) -> bool:
        """Whether a job is one of them."""
        return (
            (self.project is None or row.project == self.project)
            and (self.task is None or row.task == self.task)
            and (not self.status or row.status in self.status)
            and (self.since is None or row.created >= self.since)
        )

    def may_take(self, name: str, created: datetime, status: Status) -> bool:
        """Whether a job may be one of them, by what the list tells: the others are not read."""
        # Jobs of others have neither project nor task: their tags need not be asked for.
        is_run = RUN.search(name) is not None or (self.project is None and self.task is None)
        return is_run and (not self.status or status in self.status) and (self.since is None or created >= self.since)


def moment(since: str | datetime | timedelta | None, now: datetime) -> datetime | None:
    """Return the time that somebody means: ``2026-11-01``, ``7d``, ``12h``, a time, or how long ago.

    Raises:
        InvalidRequest: It is none of them.
    """
    match since:
        case None:
            return None
        case datetime():
            return since if since.tzinfo is not None else since.astimezone()
        case timedelta():
            return now - since
    span = SPAN.fullmatch(since.strip())
    # Before the first date and behind the last there is none, either.
    with contextlib.suppress(ValueError, OverflowError):
        if span is not None:
            return now - timedelta(seconds=float(span[1]) * SECONDS[span[2]])
        # Without a zone it is of this machine's.
        return datetime.fromisoformat(since.strip()).astimezone(UTC)
    raise InvalidRequest(f"since is a time, 2026-11-01 or 2026-11-01T12:00, or how long ago, 7d or 12h; got {since!r}")


def cache_of(service: Service) -> Cache:
    """Return what is kept of a service's jobs: each account and region has a file of its own."""
    # What is not billed is this machine's own, whose home is nobody else's; there is no account to ask for.
    where = f"{service.account}-{service.region}" if service.target.is_billed else "here"
    return Cache(service.home / "experiments" / f"{where}.sqlite")


def experiments(service: Service, choice: Choice) -> list[Experiment]:
    """Return the jobs of a choice, the latest first.

    Of those that ended before the last look nothing is asked but the list.

    Raises:
        InvalidRequest: The limit is below 1.
        ServiceError: The service does not list its jobs.
    """
    if choice.limit < 1:
        raise InvalidRequest(f"limit must be at least 1, got {choice.limit}")
    cache = cache_of(service)
    cached = cache.rows()
    # Each in full, then merged: how many of the latest are of which API is not known before.
    by_api = in_parallel(lambda api: list(_of_api(service, api, choice, cached, cache)), APIS)
    rows = sorted(itertools.chain(*by_api), key=lambda row: row.created_s, reverse=True)
    return rows[: choice.limit]


def with_trials(service: Service, rows: Iterable[Experiment]) -> list[Experiment]:
    """Return the rows, behind each sweep's those of its trials.

    Raises:
        ServiceError: The service cannot be asked for one that has not ended.
    """
    cache = cache_of(service)
    cached = cache.rows()

    def trials_of(row: Experiment) -> Sequence[Experiment]:
        if row.trial is not None:
            return ()
        if row.arn in cached:
            return cache.trials(row.arn)
        reading = read_job(service, api_of(row.kind), row.name)
        return () if reading is None else reading.trials

    every = list(rows)
    of_each = in_parallel(trials_of, every)
    return [item for row, trials in zip(every, of_each, strict=True) for item in (row, *trials)]


def _of_api(
    service: Service, api: JobApi, choice: Choice, cached: dict[str, Experiment], cache: Cache
) -> Iterator[Experiment]:
    left = choice.limit
    named = _listed(service, api, choice, cached)
    while left > 0 and (page := list(itertools.islice(named, min(AT_ONCE, left)))):
        rows = [row for row in _read(service, api, page, cached, cache) if choice.takes(row)]
        yield from rows[:left]
        left -= len(rows)


def _listed(service: Service, api: JobApi, choice: Choice, cached: dict[str, Experiment]) -> Iterator[_Named]:
    # How many have to be looked at nobody knows before: their projects are not in the list.
    for item in listed(service, api, contains=choice.contains, sent_s=_sent_s(api, choice, cached)):
        created: datetime = item["CreationTime"]
        # The list comes the latest first: all that follow are older still.
        if choice.since is not None and created < choice.since:
            return
        if choice.may_take(item[api.name_key], created, Status(item[api.status_key])):
            yield _Named(name=item[api.name_key], arn=item[api.arn_key], created_s=created.timestamp())


def _sent_s(api: JobApi, choice: Choice, cached: dict[str, Experiment]) -> list[float]:
    """Return when the jobs were sent that are kept, as far back as the choice goes by what is kept."""
    of_api = [row for row in cached.values() if row.kind == api.kind]
    newest = sorted((row.created_s for row in of_api if choice.takes(row)), reverse=True)[: choice.limit]
    return [row.created_s for row in of_api if row.created_s >= newest[-1]] if newest else []


def _read(
    service: Service, api: JobApi, page: list[_Named], cached: dict[str, Experiment], cache: Cache
) -> list[Experiment]:
    """Return the rows of a page's jobs in their order; read, and keep, those that are not kept yet."""
    # The time too: on this machine a name may be used again after `raysm rm`, and so may its ARN.
    rows = {
        job.arn: row
        for job in page
        if (row := cached.get(job.arn)) is not None and row.created_s == job.created_s and not _lacks_cost(service, row)
    }
    read = in_parallel(lambda job: read_job(service, api, job.name), [job for job in page if job.arn not in rows])
    readings = [reading for reading in read if reading is not None]
    cache.keep(reading for reading in readings if reading.is_final)
    rows |= {reading.row.arn: reading.row for reading in readings}
    return [rows[job.arn] for job in page if job.arn in rows]


def _lacks_cost(service: Service, row: Experiment) -> bool:
    """Whether a row was kept without its cost, and could have it now: a list of prices was brought since."""
    if row.cost_usd is not None or not row.is_billed or not row.instances:
        return False
    return all(price_of(instance_type, service.region) is not None for instance_type, _ in row.instances)

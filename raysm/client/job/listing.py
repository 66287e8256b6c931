"""Listing and finding jobs."""

import difflib
import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raysm.client.job.description import SecondaryStatus, Status, read
from raysm.client.job.handle import Job, attach
from raysm.client.job.records import kept_of, task_of
from raysm.client.service import Service, connect
from raysm.contract.job_api import APIS, JobApi
from raysm.contract.names import TASK_TAG, WORKLOAD_TAG
from raysm.errors import InvalidRequest, JobNotFound
from raysm.request import Target
from raysm.request.job import NAME_PATTERN
from raysm.request.session import SessionWorkload

__all__ = [
    "Listed",
    "find_all",
    "find_job",
    "find_running",
    "jobs",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One job of a list."""

    name: str
    """Its name, for ``raysm.attach``."""
    api: JobApi
    """Which of SageMaker's APIs runs it."""
    status: Status
    """How it is."""
    secondary: SecondaryStatus
    """What it does just now; of a Processing job NONE."""
    message: str
    """Of a job that waits for capacity: what the service says to that."""
    created: datetime
    """When it was sent."""
    ended: datetime | None
    """When it ended."""


def jobs(on: "Target | Service | None" = None, *, contains: str | None = None, limit: int = 20) -> list[Listed]:
    """Return the latest jobs, raysm's and others.

    Args:
        on: Where; None is the embedded SageMaker of this machine.
        contains: Part of the name; None is any.
        limit: At most so many.
    """
    service = connect(on)
    # The latest jobs may all be of one API.
    listed = [job for api in APIS for job in _listed(service, api, contains, limit)]
    return sorted(listed, key=lambda job: job.created, reverse=True)[:limit]


def _listed(service: Service, api: JobApi, contains: str | None, limit: int) -> Iterator[Listed]:
    for item in service.summaries(api, contains=contains, limit=limit):
        secondary = SecondaryStatus(item.get("SecondaryStatus", ""))
        yield Listed(
            name=item[api.name_key],
            api=api,
            status=Status(item[api.status_key]),
            secondary=secondary,
            # List tells no messages, and to describe every job would be a call for each.
            message=_reason(service, api, item[api.name_key]) if secondary is SecondaryStatus.PENDING else "",
            created=item["CreationTime"],
            ended=item.get(api.end_time_key),
        )


def _reason(service: Service, api: JobApi, name: str) -> str:
    """Return why a job waits; nothing where it was removed meanwhile."""
    try:
        return read(api, service.describe(api, name)).message
    except JobNotFound:
        return ""


EVERY = 1_000_000
"""Jobs that a list is asked for where all are wanted."""

SHOWN = 5
"""Names that a message lists."""

LISTED = 200
"""Of so many of the latest jobs the names are compared."""


def find_job(name: str, service: Service) -> Job:
    """Return the job of this name, else what ``find_running`` does.

    Args:
        name: The job's, ``digits-20260101-120000-0a1b2c3d``, or ``digits``: so a session is named, too.
        service: Where it is.

    Raises:
        JobNotFound: There is none; the message has the names that are like it.
    """
    try:
        return attach(name, service)
    except JobNotFound:
        return find_running(name, service)


def find_all(name: str, service: Service) -> list[Job]:
    """Return the jobs that a name or a pattern means: ``digits-20260101-120000-0a1b2c3d``, ``digits``, ``digits-*``.

    Raises:
        JobNotFound: There is none.
        InvalidRequest: Several jobs have this short name; a pattern says that all of them are meant.
    """
    if set(name) & set("*?["):
        listed = [(api, item) for api in APIS for item in service.summaries(api, limit=EVERY)]
        names = [item[api.name_key] for api, item in listed if fnmatch.fnmatchcase(item[api.name_key], name)]
        if not names:
            raise JobNotFound(
                f"no job matches {name!r} {service.target.describe()}; raysm jobs lists those that there are"
            )
        return [attach(each, service) for each in names]
    try:
        return [attach(name, service)]
    except JobNotFound:
        named = [item[api.name_key] for api, item in _named(name, service)]
        if len(named) > 1:
            more = ", …" if len(named) > SHOWN else ""
            raise InvalidRequest(
                f"{len(named)} jobs are named {name!r}: {', '.join(named[:SHOWN])}{more}; "
                f"give the whole name of one, or '{name}-*' for all"
            ) from None
        return [attach(named[0], service)] if named else [find_running(name, service)]


def find_running(name: str, service: Service, *, sole: bool = False, ended: Callable[[Job], None] | None = None) -> Job:
    """Return the session of this name, else the latest job that runs, or waits, and was named so by its user.

    Args:
        name: ``digits``.
        service: Where it is.
        sole: Whether it has to be the only one: something will be done to it, which is not to hit another.
        ended: Called with the last job of that name where none runs, which is returned then; None is to take none.

    Raises:
        JobNotFound: There is none; the message has the names that are like it.
        InvalidRequest: There are several, and it has to be the only one.
    """
    named = list(_named(name, service))
    # Only those: by the same name its user may have sent a hundred that have ended.
    running = [(api, item) for api, item in named if not Status(item[api.status_key]).is_terminal]
    if not running:
        missing = f"there is no job {name!r} {service.target.describe()}, nor a session of that name that runs"
        if named:
            api, item = max(named, key=lambda one: one[1]["CreationTime"])
            if ended is None:
                raise JobNotFound(f"{missing}; the last one of that name was {item[api.name_key]}")
            job = attach(item[api.name_key], service)
            ended(job)
            return job
        raise JobNotFound(
            f"{missing}: raysm jobs and raysm session list show those that there are{_hint(name, service)}"
        )
    if len(running) > 1:
        # Two sessions of one name there are not; but a job of that name may have been sent beside it.
        running = [each for each in running if _is_session(*each, service)] or running
    names = [str(item[api.name_key]) for api, item in running]
    if sole and len(names) > 1:
        raise InvalidRequest(f"{len(names)} jobs that run are named {name!r}: {', '.join(names)}; name one of them")
    return attach(names[0], service)


def _named(name: str, service: Service) -> Iterator[tuple[JobApi, dict[str, Any]]]:
    """Yield the jobs that were named so by their users: of each API the latest first."""
    # The service refuses to look for a name that no job can have.
    if not NAME_PATTERN.fullmatch(name):
        return
    beginning = kept_of(name)
    for api in APIS:
        for item in service.summaries(api, contains=beginning, limit=LISTED):
            # Of long names the beginnings may be the same: the tag, which takes a call, has all of it.
            if task_of(item[api.name_key]) == beginning and (beginning == name or _task(api, item, service) == name):
                yield api, item


def _task(api: JobApi, item: dict[str, Any], service: Service) -> str | None:
    return service.tags(item[api.arn_key]).get(TASK_TAG)


def _is_session(api: JobApi, item: dict[str, Any], service: Service) -> bool:
    return service.tags(item[api.arn_key]).get(WORKLOAD_TAG) == SessionWorkload.kind


def _hint(name: str, service: Service) -> str:
    listed = [(api, item) for api in APIS for item in service.summaries(api, limit=LISTED)]
    jobs = [str(item[api.name_key]) for api, item in listed]
    # A short name leads to a job only while that runs.
    tasks = [task_of(item[api.name_key]) for api, item in listed if not Status(item[api.status_key]).is_terminal]
    near = _near(name, [*tasks, *jobs])
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _near(name: str, names: Sequence[str]) -> list[str]:
    near = difflib.get_close_matches(name, dict.fromkeys(names), n=3, cutoff=0.6)
    # A part of a name, "digits" of "all-digits-top10", is too short to be near it.
    return near or [one for one in dict.fromkeys(names) if name in one][:3]

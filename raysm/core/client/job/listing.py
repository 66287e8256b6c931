"""List jobs, and find them by their names."""

import contextlib
import fnmatch
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raysm.core.client.job.description import SecondaryStatus, Status, read
from raysm.core.client.job.handle import Job, attach, attach_in_any_region
from raysm.core.client.job.records import kept_of, task_of
from raysm.core.client.service import Service, connect
from raysm.core.protocol.job_api import APIS, JobApi
from raysm.core.protocol.names import TASK_TAG, WORKLOAD_TAG
from raysm.core.request import Target
from raysm.core.request.job import NAME_PATTERN
from raysm.core.request.workload import built_in_kind
from raysm.errors import InvalidRequest, JobNotFound, did_you_mean

NO_LIMIT = 1_000_000
SHOWN = 5
TYPO = 0.8
"""Similarity of two names of which one may be a typo of the other: with 2 of 5 letters swapped it
is 0.8."""
COMPARED = 200
"""Number of the latest jobs whose names are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    name: str
    api: JobApi
    status: Status
    secondary: SecondaryStatus
    message: str
    created: datetime
    ended: datetime | None


def jobs(
    on: "Target | Service | None" = None, *, contains: str | None = None, limit: int = 20
) -> list[Listed]:
    """Return the latest jobs, raysm's and others; ``contains`` is a part of their names."""
    service = connect(on)
    listed = [_listed(service, *entry) for entry in _entries(service, contains, limit)]
    return sorted(listed, key=lambda job: job.created, reverse=True)[:limit]


def _entries(
    service: Service, contains: str | None, limit: int
) -> Iterator[tuple[JobApi, dict[str, Any]]]:
    for api in APIS:
        for item in service.summaries(api, contains=contains, limit=limit):
            yield api, item


def _listed(service: Service, api: JobApi, item: dict[str, Any]) -> Listed:
    secondary = SecondaryStatus(item.get("SecondaryStatus", ""))
    message = ""
    # List's answer has no messages, and describing every job would take one call each.
    if secondary is SecondaryStatus.PENDING:
        with contextlib.suppress(JobNotFound):  # it was removed meanwhile
            message = read(api, service.describe(api, item[api.name_key])).message
    return Listed(
        name=item[api.name_key],
        api=api,
        status=Status(item[api.status_key]),
        secondary=secondary,
        message=message,
        created=item["CreationTime"],
        ended=item.get(api.end_time_key),
    )


def find_job(name: str, service: Service, *, told: Callable[[Job], None] | None = None) -> Job:
    try:
        return attach_in_any_region(service, name)
    except JobNotFound:
        return find_running(name, service, told=told)


def find_all(name: str, service: Service) -> list[Job]:
    """Return the jobs that a name or a pattern means.

    Examples are ``digits-20260101-120000-0a1b2c3d``, ``digits`` and ``digits-*``.
    """
    if set(name) & set("*?["):
        all_names = [str(item[api.name_key]) for api, item in _entries(service, None, NO_LIMIT)]
        names = [each for each in all_names if fnmatch.fnmatchcase(each, name)]
        if not names:
            raise JobNotFound(
                f"no job matches {name!r} {service.target.describe()}; raysm jobs lists the jobs"
            )
        return [attach(each, service) for each in names]
    try:
        return [attach_in_any_region(service, name)]
    except JobNotFound:
        named = [str(item[api.name_key]) for api, item in _jobs_of_task(name, service)]
        if len(named) > 1:
            more = ", …" if len(named) > SHOWN else ""
            raise InvalidRequest(
                f"{len(named)} jobs are named {name!r}: {', '.join(named[:SHOWN])}{more}; "
                f"give one or '{name}-*'"
            ) from None
        return [attach(named[0], service)] if named else [find_running(name, service)]


def find_running(
    name: str, service: Service, *, sole: bool = False, told: Callable[[Job], None] | None = None
) -> Job:
    """Return the session of this name, else the latest running or waiting job of this task.

    With ``sole``, several jobs are refused. If none runs, the last one is returned, but without
    ``told`` that raises. ``told`` is called with a job that was chosen among several, or has ended.
    """
    where = service
    named: list[tuple[Service, JobApi, dict[str, Any]]] = []
    running: list[tuple[JobApi, dict[str, Any]]] = []
    # A job that found no instances here may run in another region.
    for service in itertools.chain([where], where.in_other_regions()):
        found = list(_jobs_of_task(name, service))
        named += [(service, api, item) for api, item in found]
        running = [
            (api, item) for api, item in found if not Status(item[api.status_key]).is_terminal
        ]
        if running:
            break
    if not running:
        missing = (
            f"there is no job {name!r} {where.target.describe()}, "
            "nor a running session of that name"
        )
        if named:
            service, api, item = max(named, key=lambda one: one[2]["CreationTime"])
            if told is None:
                raise JobNotFound(
                    f"no job {name!r} runs now; "
                    f"the last one of that name, {item[api.name_key]}, has ended"
                )
            job = attach(item[api.name_key], service)
            told(job)
            return job
        near = _hint(name, where, has_ended=told is not None)
        raise JobNotFound(
            f"{missing}: raysm jobs and raysm session list show the existing ones{near}"
        )
    if len(running) > 1:
        # A session's name is unique among sessions, but jobs may have the same name.
        kinds = [service.tags(item[api.arn_key]).get(WORKLOAD_TAG) for api, item in running]
        classes = [built_in_kind(kind) if kind else None for kind in kinds]
        once = [
            one
            for one, found in zip(running, classes, strict=True)
            if found is not None and found.is_named_once
        ]
        running = once or running
    names = [str(item[api.name_key]) for api, item in running]
    if sole and len(names) > 1:
        raise InvalidRequest(
            f"{len(names)} jobs that run are named {name!r}: {', '.join(names)}; name one of them"
        )
    job = attach(names[0], service)
    if told is not None and len(names) > 1:
        told(job)
    return job


def _jobs_of_task(name: str, service: Service) -> Iterator[tuple[JobApi, dict[str, Any]]]:
    # The service refuses a search for a name that no job can have.
    if not NAME_PATTERN.fullmatch(name):
        return
    beginning = kept_of(name)
    for api, item in _entries(service, beginning, COMPARED):
        # Long names may have the same beginning: only the tag, which takes a call, has the whole
        # name.
        if task_of(item[api.name_key]) == beginning and (
            beginning == name or service.tags(item[api.arn_key]).get(TASK_TAG) == name
        ):
            yield api, item


def _hint(name: str, service: Service, *, has_ended: bool) -> str:
    """Return names close to ``name``; those of ended tasks only with ``has_ended``."""
    entries = list(_entries(service, None, COMPARED))
    current = [
        item[api.name_key]
        for api, item in entries
        if has_ended or not Status(item[api.status_key]).is_terminal
    ]
    tasks = map(task_of, current)
    names = list(dict.fromkeys([*tasks, *(str(item[api.name_key]) for api, item in entries)]))
    # A part of a name, "digits" of "all-digits-top10", is too short to be close to it.
    holding = [one for one in names if name in one][:3]
    # Short words are alike by chance: "nojob" is not a typo of "job".
    return did_you_mean(name, names, most=3, cutoff=TYPO) or did_you_mean(
        name, holding, most=3, cutoff=0
    )

"""The jobs that there are, Training and Processing, the latest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from raysm.client.description import SecondaryStatus, Status, read
from raysm.client.service import Service, connect
from raysm.contract.job_api import APIS, JobApi
from raysm.errors import JobNotFound
from raysm.request import Target

__all__ = ["Listed", "jobs"]


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

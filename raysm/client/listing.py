"""The jobs that there are, Training and Processing, the latest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raysm.client.description import SecondaryStatus, Status, read
from raysm.client.plan import API
from raysm.client.service import Service, connect
from raysm.errors import JobNotFound
from raysm.request import Target

__all__ = ["Listed", "jobs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One job of a list."""

    name: str
    """Its name, for ``raysm.attach``."""
    api: API
    """The operation that made it."""
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
    found = [*_training(service, contains, limit), *_processing(service, contains, limit)]
    return sorted(found, key=lambda job: job.created, reverse=True)[:limit]


def _training(service: Service, contains: str | None, limit: int) -> Iterator[Listed]:
    for item in _pages(service, "list_training_jobs", "TrainingJobSummaries", contains, limit):
        yield Listed(
            name=item["TrainingJobName"],
            api="CreateTrainingJob",
            status=Status(item["TrainingJobStatus"]),
            secondary=(secondary := SecondaryStatus(item.get("SecondaryStatus", ""))),
            message=_reason(service, item["TrainingJobName"]) if secondary is SecondaryStatus.PENDING else "",
            created=item["CreationTime"],
            ended=item.get("TrainingEndTime"),
        )


def _reason(service: Service, name: str) -> str:
    """Return why a job waits; nothing where it was removed meanwhile."""
    try:
        return read("CreateTrainingJob", service.describe("CreateTrainingJob", name)).message
    except JobNotFound:
        return ""


def _processing(service: Service, contains: str | None, limit: int) -> Iterator[Listed]:
    for item in _pages(service, "list_processing_jobs", "ProcessingJobSummaries", contains, limit):
        yield Listed(
            name=item["ProcessingJobName"],
            api="CreateProcessingJob",
            status=Status(item["ProcessingJobStatus"]),
            secondary=SecondaryStatus.NONE,
            message="",
            created=item["CreationTime"],
            ended=item.get("ProcessingEndTime"),
        )


def _pages(service: Service, operation: str, key: str, contains: str | None, limit: int) -> Iterator[dict[str, Any]]:
    wanted: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": min(limit, 100)}
    if contains:
        wanted["NameContains"] = contains
    left = limit
    while left > 0:
        page = service.call("sagemaker", operation, **wanted)
        yield from page.get(key, ())[:left]
        left -= len(page.get(key, ()))
        if not page.get("NextToken"):
            return
        wanted["NextToken"] = page["NextToken"]

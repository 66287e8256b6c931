"""The queue that a job is sent to, and lists of jobs."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.paging import page_under
from raysm.local.server.batch.records import BatchJob
from raysm.local.server.batch.resources import Resource, Resources

__all__ = ["listed_jobs", "queue_for"]

DEFAULT_STATUS = "RUNNING"
"""What is listed where a request names neither status nor filter: AWS's, which surprises everybody once."""


def queue_for(resources: Resources, region: str, request: Mapping[str, Any]) -> Resource:
    """Return the queue that a job is sent to.

    Args:
        resources: Among which it is.
        region: Where.
        request: Of the job.

    Raises:
        ApiError: It takes no such job, or none at all.
    """
    queue = resources.get("job-queue", region, request["jobQueue"])
    if not queue.is_enabled:
        raise client_error(f"{queue.arn} is DISABLED: it takes no jobs")
    return queue


def listed_jobs(
    jobs: Sequence[BatchJob], request: Mapping[str, Any], summarize: Callable[[BatchJob], dict[str, Any]]
) -> dict[str, Any]:
    """Return a page of jobs, the latest first, by the filters of the request."""
    filters = {item["name"]: item["values"] for item in request.get("filters") or []}
    # A filter replaces the status, as on AWS.
    status = None if filters else request.get("jobStatus") or DEFAULT_STATUS
    chosen = [job for job in jobs if status in (None, job.status) and _passes(job, filters)]
    # By the id at last: two jobs of one moment must not change places between two pages.
    chosen.sort(key=lambda job: (job.created_s, job.index or 0, job.id), reverse=True)
    return page_under("jobSummaryList", chosen, request, lambda job: job.id, summarize)


def _passes(job: BatchJob, filters: Mapping[str, Sequence[str]]) -> bool:
    tests: dict[str, Callable[[str], bool]] = {
        "JOB_NAME": lambda name: fnmatch.fnmatchcase(job.name.lower(), name.lower()),
        "JOB_DEFINITION": lambda name: name in str(job.request.get("jobDefinition")),
        "BEFORE_CREATED_AT": lambda ms: job.created_s * 1000 < float(ms),
        "AFTER_CREATED_AT": lambda ms: job.created_s * 1000 > float(ms),
    }
    for name, values in filters.items():
        if name not in tests:
            raise client_error(f"there is no filter {name!r} here: {', '.join(tests)}")
        if not any(tests[name](value) for value in values):
            return False
    return True

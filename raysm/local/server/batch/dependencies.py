"""Whether a job may begin, as far as others are concerned: its dependsOn and those others flow in. Pure.

https://docs.aws.amazon.com/batch/latest/userguide/job_dependencies.html
"""

from collections.abc import Callable, Iterator

from raysm.local.server.batch.records import BatchJob

__all__ = ["FAILED", "awaited"]

FAILED = "Dependent Job failed"

Find = Callable[[str], BatchJob | None]
"""Returns the job of an id."""


def awaited(job: BatchJob, find: Find) -> bool | None:
    """Return whether a job still waits for others; None where one of them has failed, and it never can begin."""
    others = [find(identifier) for identifier in _identifiers(job)]
    if any(other is None or other.status == "FAILED" for other in others):
        return None
    return any(other is not None and not other.final for other in others)


def _identifiers(job: BatchJob) -> Iterator[str]:
    for item in job.request.get("dependsOn") or []:
        kind, other = item.get("type"), item.get("jobId", "").rpartition("/")[2]
        # Of an array the dependencies are its children's, each for itself.
        if kind == "SEQUENTIAL":
            if job.index:
                yield f"{job.parent}:{job.index - 1}"
        elif kind == "N_TO_N" and job.index is not None:
            yield f"{other}:{job.index}"
        elif other:
            yield other

"""What Batch tells of jobs: records flow in, JSON flows out. All moments are milliseconds."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from raysm.local.server.batch.program_work import container_of
from raysm.local.server.batch.records import ACTIVE, FINAL, BatchJob, Try

__all__ = ["describe_program", "submitted", "summarize_program"]

STATUSES = ("SUBMITTED", "PENDING", "RUNNABLE", *ACTIVE, *FINAL)
"""Of an array's statusSummary."""


def submitted(job: BatchJob) -> dict[str, Any]:
    """Return what is answered to whoever sends or changes one."""
    return {"jobArn": job.arn, "jobName": job.name, "jobId": job.id}


def describe_program(job: BatchJob, children: Sequence[BatchJob]) -> dict[str, Any]:
    """Return what DescribeJobs says of one, with the children of an array."""
    # As it ran, with what the request replaced; AWS, too, shows no more what the definition had.
    container = dict(container_of(job))
    if job.tries:
        container |= _present(exitCode=job.tries[-1].exit_code, logStreamName=job.tries[-1].resource)
    return _present(
        **_state(job),
        **{name: job.request.get(name) for name in ("dependsOn", "retryStrategy", "timeout", "parameters")},
        attempts=[_program_try(one) for one in job.tries],
        jobQueue=job.queue,
        jobDefinition=job.request["jobDefinition"],
        schedulingPriority=job.priority,
        container=container,
        arrayProperties=_array(job, children),
        tags=dict(job.tags) or None,
    )


def summarize_program(job: BatchJob, children: Sequence[BatchJob]) -> dict[str, Any]:
    """Return what ListJobs says of one."""
    code = job.tries[-1].exit_code if job.tries else None
    return _present(
        **_state(job),
        jobDefinition=job.request["jobDefinition"],
        container=None if code is None else {"exitCode": code},
        arrayProperties=_array(job, children),
    )


def _state(job: BatchJob) -> dict[str, Any]:
    return {
        **submitted(job),
        "status": job.status,
        "statusReason": job.reason or None,
        "createdAt": _ms(job.created_s),
        "startedAt": _ms(job.started_s),
        "stoppedAt": _ms(job.stopped_s),
        "isTerminated": job.ordered is not None and not job.is_cancelled,
        "isCancelled": job.is_cancelled,
    }


def _array(job: BatchJob, children: Sequence[BatchJob]) -> dict[str, Any] | None:
    # A child before its array: both have a size.
    if job.index is not None:
        return {"size": job.size, "index": job.index}
    if job.size is None:
        return None
    counts = Counter(child.status for child in children)
    return {"size": job.size, "statusSummary": {name: counts[name] for name in STATUSES}}


def _program_try(one: Try) -> dict[str, Any]:
    container = _present(exitCode=one.exit_code, logStreamName=one.resource or None)
    times = {"startedAt": _ms(one.started_s), "stoppedAt": _ms(one.stopped_s)}
    return _present(container=container, **times, statusReason=one.reason or None)


def _ms(moment_s: float | None) -> int | None:
    # Of boto3's own types they are plain integers, not times.
    return None if moment_s is None else round(moment_s * 1000)


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

"""A service job of AWS Batch as a grid sees it: Batch's answers flow in, what is said of a job of SageMaker flows out.

Pure. A service job has one training job, which Batch names; while it waits there is none, and of one that found no
capacity there is none again: https://docs.aws.amazon.com/batch/latest/userguide/service-job-status.html
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from raysm.client.description import Description, SecondaryStatus, Status
from raysm.contract.job_api import TRAINING
from raysm.grid.region import Listed

__all__ = ["description_of", "listed_of", "training_job_of"]

ENDS = {"SUCCEEDED": Status.COMPLETED, "FAILED": Status.FAILED}
"""Statuses of a service job that do not change any more; in all others it goes on."""

PHASES = {"STARTING": SecondaryStatus.STARTING, "RUNNING": SecondaryStatus.TRAINING}
"""What a service job does whose training job cannot tell; in all others it waits for its instances."""

MOMENTS = ("createdAt", "scheduledAt", "startedAt", "stoppedAt")

BY_A_LIMIT = re.compile(r"JobStateTimeLimit|CAPACITY:")
"""In the words about a job that its queue has ended: nobody's wish, but a place that had nothing."""


def training_job_of(answer: Mapping[str, Any]) -> str | None:
    """Return the name of the latest training job of a service job; None where there was none yet."""
    resource = (answer.get("latestAttempt") or {}).get("serviceResourceId") or {}
    return resource.get("value", "").rpartition("/")[2] or None


def listed_of(summary: Mapping[str, Any], now: float) -> Listed:
    """Return what ListServiceJobs says of a job.

    Args:
        summary: Its words.
        now: Seconds since the epoch.
    """
    status = ENDS.get(summary["status"], Status.IN_PROGRESS)
    # A job that Batch has given up may have a training job that still stops, and is billed: that is asked about again
    # with each look until it has ended, too.
    changed_s = now if status.is_terminal else max(summary.get(name) or 0 for name in MOMENTS) / 1000
    return Listed(name=summary["jobName"], status=status, created_s=summary["createdAt"] / 1000, changed_s=changed_s)


def description_of(name: str, answer: Mapping[str, Any], training: Description | None) -> Description:
    """Return what is known of a job.

    Args:
        name: Its own, until it has a training job.
        answer: What DescribeServiceJob says.
        training: What is said of its latest training job; None where there is none.
    """
    end = ENDS.get(answer["status"])
    # Between an attempt that found no capacity and the next one, the job goes on although its training job has ended.
    if training is not None and (end is not None or not training.status.is_terminal):
        return training
    reason = answer.get("statusReason") or ""
    if end is None:
        secondary = PHASES.get(answer["status"], SecondaryStatus.PENDING)
        return _without_training_job(name, answer, Status.IN_PROGRESS, secondary=secondary, message=reason)
    if end is Status.FAILED and answer.get("isTerminated") and not BY_A_LIMIT.search(reason):
        return _without_training_job(name, answer, Status.STOPPED, secondary=SecondaryStatus.STOPPED, message=reason)
    return _without_training_job(name, answer, end, reason=reason if end is Status.FAILED else "")


def _without_training_job(name: str, answer: Mapping[str, Any], status: Status, **words: Any) -> Description:
    return Description(
        name=name,
        arn=answer["jobArn"],
        api=TRAINING,
        status=status,
        created=_moment(answer.get("createdAt")),
        # Of one that ran, and whose training job somebody has deleted, the cost is unknown; of all others it is none.
        started=_moment(answer.get("startedAt")),
        ended=_moment(answer.get("stoppedAt")) if status.is_terminal else None,
        **words,
    )


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)

"""A job as Describe answers, in one frozen value for Training and Processing.

A status that is not in the table is UNKNOWN, with a warning and never an error: AWS adds some from time to time.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from raysm.client.calls import call_of
from raysm.contract.job_api import JobApi, settled

__all__ = ["Description", "SecondaryStatus", "Status", "outputs_of", "read"]

WRAPPED = re.compile(r"AlgorithmError: (.*?)(?:\s*, exit code: (\d+))?", re.DOTALL)
"""What the service makes of a failure file; of a long one the end is cut off. Seen in public reports of real jobs."""


class Status(StrEnum):
    """TrainingJobStatus and ProcessingJobStatus."""

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    DELETING = "Deleting"
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, value: object) -> "Status":
        warnings.warn(f"the service says the status {value!r}, which this raysm does not know", RuntimeWarning, 2)
        return cls.UNKNOWN

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        # UNKNOWN is none of them: a job of which raysm cannot read the status may still run.
        return self in (Status.COMPLETED, Status.FAILED, Status.STOPPED)


class SecondaryStatus(StrEnum):
    """SecondaryStatus of a Training job; a Processing job has none."""

    STARTING = "Starting"
    PENDING = "Pending"
    LAUNCHING = "LaunchingMLInstances"
    PREPARING = "PreparingTrainingStack"
    DOWNLOADING = "Downloading"
    DOWNLOADING_IMAGE = "DownloadingTrainingImage"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_EXCEEDED = "MaxWaitTimeExceeded"
    COMPLETED = "Completed"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"
    UPDATING = "Updating"
    NONE = ""
    UNKNOWN = "Unknown"

    @classmethod
    def _missing_(cls, value: object) -> "SecondaryStatus":
        warnings.warn(
            f"the service says the secondary status {value!r}, which this raysm does not know", RuntimeWarning, 2
        )
        return cls.UNKNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A job at one moment."""

    name: str
    """The job's name."""
    arn: str
    """Its ARN."""
    api: JobApi
    """Which of SageMaker's APIs runs it."""
    status: Status
    """How it is."""
    secondary: SecondaryStatus = SecondaryStatus.NONE
    """What it does just now."""
    message: str = ""
    """What the service says to the last change of the secondary status."""
    reason: str = ""
    """Why it failed; empty otherwise."""
    instances: tuple[tuple[str, int], ...] = ()
    """Instance type and count, of each group."""
    selected_type: str | None = None
    """Of a job that may have one of several instance types, which one it got; None where it had no choice, or yet."""
    created: datetime | None = None
    """When it was sent."""
    started: datetime | None = None
    """When its instances were started."""
    ended: datetime | None = None
    """When it ended."""
    billable_s: int | None = None
    """Seconds that are paid for, of each instance."""
    training_s: int | None = None
    """Seconds that the training took; of a job on spot capacity more than are paid for."""
    transitions: tuple[tuple[str, datetime | None, datetime | None], ...] = ()
    """Each secondary status with its begin and end, as they came."""
    # Not in the repr, of which it would be the most by far.
    answer: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All that Describe said."""

    @property
    def exceeded_runtime(self) -> bool:
        """Whether it was ended because it had run as long as it may."""
        return self.status.is_terminal and self.secondary is SecondaryStatus.MAX_RUNTIME_EXCEEDED

    @property
    def interruptions(self) -> tuple[float, ...]:
        """Of each time that its spot capacity was taken back, the seconds that it had worked since it had begun."""
        training: datetime | None = None
        seconds: list[float] = []
        for status, begin, _ in self.transitions:
            if status == SecondaryStatus.TRAINING:
                training = begin
            elif status == SecondaryStatus.INTERRUPTED:
                seconds.append((begin - training).total_seconds() if begin and training else 0.0)
        return tuple(seconds)


def outputs_of(description: Description) -> str:
    """Return the prefix below which ``model/`` and ``data/`` of the job lie, without a slash at its end."""
    return call_of(description.api).outputs(description.name, description.answer)


def read(api: JobApi, answer: Mapping[str, Any]) -> Description:
    """Read what Describe answered of a job of ``api``; what it does not tell of its jobs stays empty."""
    status = Status(answer.get(api.status_key, "Unknown"))
    transitions = answer.get("SecondaryStatusTransitions", ())
    return Description(
        name=answer[api.name_key],
        arn=answer[api.arn_key],
        api=api,
        status=status,
        secondary=SecondaryStatus(answer.get("SecondaryStatus", "")),
        message=transitions[-1].get("StatusMessage", "") if transitions else "",
        reason=_reason(api, status, answer),
        instances=_instances(api, answer),
        selected_type=_selected(answer),
        created=answer.get("CreationTime"),
        started=answer.get(api.start_time_key),
        ended=answer.get(api.end_time_key),
        billable_s=answer.get("BillableTimeInSeconds"),
        training_s=answer.get("TrainingTimeInSeconds"),
        transitions=tuple((item.get("Status", ""), item.get("StartTime"), item.get("EndTime")) for item in transitions),
        answer=answer,
    )


def _reason(api: JobApi, status: Status, answer: Mapping[str, Any]) -> str:
    if api.has_exit_message and status is not Status.FAILED:  # it says how a job went that is none the worse for it
        return ""
    texts = [_unwrapped(answer.get(key, "")) for key in api.reason_keys]
    # The same words may have arrived under two keys.
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _unwrapped(reason: str) -> str:
    """Return the job's own words of a reason; what the service says itself (ClientError: …) stays as it is."""
    wrapped = WRAPPED.fullmatch(reason)
    if wrapped is None:
        return reason
    # An instance that was killed has left no words: its exit code is all there is.
    return wrapped[1] or (f"exit code: {wrapped[2]}" if wrapped[2] else reason)


def _selected(answer: Mapping[str, Any]) -> str | None:
    name: str | None = answer.get("ResourceConfig", {}).get("SelectedInstanceType")
    return name


def _instances(api: JobApi, answer: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    cluster = answer
    for key in api.cluster_keys:
        cluster = cluster.get(key, {})
    # A cluster without groups has type and count where each group has its own.
    groups = cluster.get("InstanceGroups") or [settled(cluster)]
    return tuple((group.get("InstanceType", "?"), group.get("InstanceCount", 0)) for group in groups)

"""What the service says of a job, read into one frozen value, the same for Training and Processing.

Pure: what flows in is an answer of Describe, what flows out is a Description. A status that is not in the table is
UNKNOWN, with a warning, never an error: AWS adds some from time to time.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from raysm.client.plan import API

__all__ = ["Description", "SecondaryStatus", "Status", "outputs_of", "read"]


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
    api: API
    """The operation that made it."""
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
    created: datetime | None = None
    """When it was sent."""
    started: datetime | None = None
    """When its instances were started."""
    ended: datetime | None = None
    """When it ended."""
    billable_s: int | None = None
    """Seconds that are paid for."""
    transitions: tuple[tuple[str, datetime | None, datetime | None], ...] = ()
    """Each secondary status with its begin and end, as they came."""
    answer: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All that Describe said."""

    @property
    def exceeded_runtime(self) -> bool:
        """Whether it was ended because it had run as long as it may."""
        return self.status.is_terminal and self.secondary is SecondaryStatus.MAX_RUNTIME_EXCEEDED


def outputs_of(description: Description) -> str:
    """Return the prefix below which ``model/`` and ``data/`` of the job lie, without a slash at its end."""
    answer = description.answer
    if description.api == "CreateTrainingJob":
        artifacts = answer.get("ModelArtifacts", {}).get("S3ModelArtifacts", "").rstrip("/")
        if artifacts:
            return str(artifacts.rpartition("/")[0])
        return f"{answer['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{description.name}/output"
    outputs = answer.get("ProcessingOutputConfig", {}).get("Outputs", ())
    found = {output["OutputName"]: output["S3Output"]["S3Uri"].rstrip("/") for output in outputs}
    return str(next(iter(found.values()), "").rpartition("/")[0])


def read(api: API, answer: Mapping[str, Any]) -> Description:
    """Read what DescribeTrainingJob or DescribeProcessingJob answered."""
    return _training(answer) if api == "CreateTrainingJob" else _processing(answer)


def _training(answer: Mapping[str, Any]) -> Description:
    resources = answer.get("ResourceConfig", {})
    groups = resources.get("InstanceGroups") or [resources]
    transitions = answer.get("SecondaryStatusTransitions", ())
    return Description(
        name=answer["TrainingJobName"],
        arn=answer["TrainingJobArn"],
        api="CreateTrainingJob",
        status=Status(answer.get("TrainingJobStatus", "Unknown")),
        secondary=SecondaryStatus(answer.get("SecondaryStatus", "")),
        message=transitions[-1].get("StatusMessage", "") if transitions else "",
        reason=answer.get("FailureReason", ""),
        instances=tuple((group.get("InstanceType", "?"), group.get("InstanceCount", 0)) for group in groups),
        created=answer.get("CreationTime"),
        started=answer.get("TrainingStartTime"),
        ended=answer.get("TrainingEndTime"),
        billable_s=answer.get("BillableTimeInSeconds"),
        transitions=tuple((item.get("Status", ""), item.get("StartTime"), item.get("EndTime")) for item in transitions),
        answer=answer,
    )


def _processing(answer: Mapping[str, Any]) -> Description:
    cluster = answer.get("ProcessingResources", {}).get("ClusterConfig", {})
    # The failure file's words arrive as ExitMessage; FailureReason says it in the service's own.
    words = [answer.get("ExitMessage", ""), answer.get("FailureReason", "")]
    status = Status(answer.get("ProcessingJobStatus", "Unknown"))
    return Description(
        name=answer["ProcessingJobName"],
        arn=answer["ProcessingJobArn"],
        api="CreateProcessingJob",
        status=status,
        reason="\n".join(dict.fromkeys(word for word in words if word)) if status is Status.FAILED else "",
        instances=((cluster.get("InstanceType", "?"), cluster.get("InstanceCount", 0)),),
        created=answer.get("CreationTime"),
        started=answer.get("ProcessingStartTime"),
        ended=answer.get("ProcessingEndTime"),
        answer=answer,
    )

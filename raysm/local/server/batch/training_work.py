"""Service jobs: the request of a training job flows in, training jobs of the embedded SageMaker flow out, one a try.

How their statuses map: https://docs.aws.amazon.com/batch/latest/userguide/service-job-status.html
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from raysm.contract.instance_preferences import settled
from raysm.contract.job_api import TRAINING
from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.records import BatchJob
from raysm.local.server.batch.work import NO_CAPACITY, NotNow, Seen
from raysm.local.server.listing import listed
from raysm.local.server.moto_internals import ACCOUNT
from raysm.local.server.records import JobRecord
from raysm.local.server.validation import check

__all__ = ["LONGEST_PAYLOAD", "PREFIX", "TrainingJobs", "TrainingWork", "payload_of"]

PREFIX = "AWSBatch"
"""Begins the names of its training jobs: the role of the service may touch no others."""
LONGEST_NAME = 63
LONGEST_PAYLOAD = 10 << 10
UNIT = "NUM_INSTANCES"
SAID = "Received status from SageMaker:"
WAITING = f"{NO_CAPACITY} - Unable to provision requested compute resources"
BEFORE = {"Starting": "SCHEDULED", "Pending": "SCHEDULED", "Downloading": "STARTING"}
"""Secondary statuses of a training job that does not run yet."""


class TrainingJobs(Protocol):
    """The training jobs of the server, as far as a queue is concerned."""

    def launch(self, request: Mapping[str, Any], region: str) -> None:
        """Create one; raises ApiError where it is refused."""

    def training_job(self, name: str, region: str) -> JobRecord:
        """Return one as it is now; raises ApiError where there is none."""

    def stop_training(self, name: str, region: str) -> None:
        """Ask one to end; raises ApiError where it has."""

    def delete_training(self, name: str, region: str) -> None:
        """Forget one that has ended."""


def payload_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the CreateTrainingJob of a service job.

    Raises:
        ApiError: There is none in it, or one that could never be created.
    """
    text = request["serviceRequestPayload"]
    if len(text.encode()) > LONGEST_PAYLOAD:
        raise client_error(f"serviceRequestPayload has at most {LONGEST_PAYLOAD} bytes, got {len(text.encode())}")
    try:
        payload = json.loads(text)
    except ValueError as error:
        raise client_error(f"serviceRequestPayload is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise client_error("serviceRequestPayload is a JSON object, the request of CreateTrainingJob")
    try:
        check(TRAINING.create, payload)
    except ApiError as error:
        raise client_error(f"serviceRequestPayload: {error.message}") from None
    return payload


class TrainingWork:
    """See ``work.Work``."""

    environments = "serviceEnvironmentOrder"
    environment = "serviceEnvironment"
    part = "service-environment"

    def __init__(self, jobs: TrainingJobs) -> None:
        """Create them by ``jobs``."""
        self._jobs = jobs

    def capacity(self, environment: Mapping[str, Any]) -> float:
        """Return how many instances may be in use."""
        limits = [limit for limit in environment["capacityLimits"] if limit.get("capacityUnit", UNIT) == UNIT]
        return float(sum(limit.get("maxCapacity") or 0 for limit in limits))

    def need(self, job: BatchJob) -> float:
        """Return how many instances a job has."""
        resources = payload_of(job.request)["ResourceConfig"]
        groups = resources.get("InstanceGroups") or [settled(resources)]
        return float(sum(group.get("InstanceCount") or 1 for group in groups))

    def limit_s(self, job: BatchJob) -> float | None:
        """Return the limit of an attempt."""
        seconds = (job.request.get("timeoutConfig") or {}).get("attemptDurationSeconds")
        return None if seconds is None else float(seconds)

    def begin(self, job: BatchJob) -> str:
        """Create a training job; one that the account has no room for may be created later."""
        payload = payload_of(job.request)
        name = _job_name(payload["TrainingJobName"])
        # The tags are the queue's, but a training job has them too: SageMaker knows nothing of Batch's.
        tags = {**{tag["Key"]: tag["Value"] for tag in payload.get("Tags") or []}, **job.tags}
        request = {**payload, "TrainingJobName": name, "Tags": listed(tags)}
        try:
            self._jobs.launch(request, job.region)
        except ApiError as error:
            if error.code == "ResourceLimitExceeded":
                raise NotNow(f"{SAID} {error.message}") from None
            raise ApiError(error.code, f"{SAID} {error.message}") from None
        return f"arn:aws:sagemaker:{job.region}:{ACCOUNT}:training-job/{name}"

    def look(self, job: BatchJob) -> Seen:
        """Return how its training job is; what found no capacity is deleted, as Batch does it."""
        name = _name_of(job)
        try:
            record = self._jobs.training_job(name, job.region)
        except ApiError as error:
            return Seen(status="FAILED", reason=f"{SAID} {error.message}")
        if not record.final:
            return Seen(status=BEFORE.get(record.secondary, "RUNNING") if not record.started_s else "RUNNING")
        if _is_starved(record):
            self._jobs.delete_training(name, job.region)
            return Seen(status="FAILED", reason=WAITING, is_starved=True)
        if record.status == "Completed":
            return Seen(status="SUCCEEDED", reason=f"{SAID} Training job completed")
        return Seen(status="FAILED", reason=f"{SAID}{record.failure_reason or f' Training job {record.secondary}'}")

    def stop(self, job: BatchJob) -> None:
        """Stop its training job."""
        try:
            if self._jobs.training_job(_name_of(job), job.region).status == "InProgress":
                self._jobs.stop_training(_name_of(job), job.region)
        except ApiError:
            return  # it ended in this moment

    def close(self) -> None:
        """Leave them to whoever ends all training jobs."""


def _name_of(job: BatchJob) -> str:
    return job.tries[-1].resource.rpartition("/")[2]


def _job_name(name: str) -> str:
    # As AWS's own example of an event has it: prefix, what fits of the name, 32 digits.
    # https://docs.aws.amazon.com/batch/latest/userguide/service-job-events.html
    digits = uuid.uuid4().hex
    return f"{PREFIX}{name[: LONGEST_NAME - len(PREFIX) - len(digits)]}{digits}"


def _is_starved(record: JobRecord) -> bool:
    # Both ways in which SageMaker says it, as Batch reads them:
    # https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_capacity.html
    if record.status == "Failed":
        return (record.failure_reason or "").startswith("CapacityError")
    return record.status == "Stopped" and record.started_s is None and record.secondary.startswith("Max")

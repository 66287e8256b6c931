"""One region whose jobs go through a queue of AWS Batch: Batch decides when each begins, and the grid where.

Batch gives its training job a name of its own, ``AWSBatch…``. What the grid knows by the name of an attempt is the
service job; its training job is found by it. None of this was seen on AWS.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.client.description import Description, read
from raysm.client.payload_place import remove_payload
from raysm.client.plan import Plan
from raysm.client.service import Service
from raysm.contract.job_api import TRAINING
from raysm.contract.row_record import RowOutcome
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.grid.attempt import Attempt
from raysm.grid.queued_job import description_of, listed_of, training_job_of
from raysm.grid.region import Page
from raysm.grid.service_region import PAGE, Prepare, ServiceRegion
from raysm.grid.task import Task

__all__ = ["LONGEST_PAYLOAD", "QueueRegion"]

LONGEST_PAYLOAD = 10 << 10
"""Bytes of the request of a training job in a queue, of which SageMaker itself takes more: the most of
serviceRequestPayload (https://docs.aws.amazon.com/batch/latest/userguide/service_limits.html)."""

KIND = "SAGEMAKER_TRAINING"

HIGHEST_PRIORITY = 9999

WHY = "the grid has no use for it any more: raysm grid rows says why"


class QueueRegion:
    """A region behind a queue; see ``raysm.grid.region.Region``."""

    def __init__(self, service: Service, prepare: Prepare, grid: str, queue: str, share: str = "") -> None:
        """Take the queue of the region.

        Args:
            service: Of the region.
            prepare: Makes an attempt's job for it.
            grid: With what the names of the grid's jobs begin, and of its folders in S3.
            queue: Name or ARN.
            share: Identifier of the jobs' share, of a queue with a scheduling policy.
        """
        self._service = service
        self._prepare = prepare
        self._queue = queue
        self._share = share
        self._region = ServiceRegion(service, prepare, grid)
        # By the names of attempts, as far as they were come across; all of it can be asked for again.
        self._ids: dict[str, str] = {}
        self._training_jobs: dict[str, str] = {}

    def check(self) -> None:
        """Ask for the queue, before anything is sent to it.

        Raises:
            InvalidRequest: There is none of this name, or it takes no training jobs.
            ServiceError: Batch does not answer.
        """
        queues = self._call("describe_job_queues", jobQueues=[self._queue])["jobQueues"]
        where = f"the queue {self._queue!r} in {self._service.region}"
        if not queues:
            raise InvalidRequest(f"there is no such thing as {where}; aws batch describe-job-queues lists those there")
        (queue,) = queues
        # Not by its type alone, which the queues of before 2025 do not say.
        if not queue.get("serviceEnvironmentOrder"):
            raise InvalidRequest(f"{where} takes no training jobs; name one of the type {KIND}")
        if queue["state"] != "ENABLED":
            raise InvalidRequest(f"{where} is {queue['state']}; enable it, or name another --queue")
        if bool(queue.get("schedulingPolicyArn")) != bool(self._share):
            needs = "has a scheduling policy: name the share of the grid's jobs, --queue-share"
            raise InvalidRequest(f"{where} {needs if not self._share else 'has no shares: leave --queue-share out'}")

    def create(self, task: Task, attempt: Attempt) -> None:
        """Send an attempt to the queue, unless it is there already.

        Raises:
            InvalidRequest: The row cannot be sent, or its request is longer than Batch takes.
            ServiceError: As Batch says.
        """
        prepared = self._prepare(task, attempt)
        request = self._request(prepared.plan, task, attempt)
        # Looked for first: of a token that is used again Batch's documentation says that the request is rejected, and
        # not for how long a token is remembered. A controller may be started again after days.
        if self._find(attempt.name) is not None:
            return
        with prepared.brought(leaves_payload=True):
            self._submit(request)

    def _request(self, plan: Plan, task: Task, attempt: Attempt) -> dict[str, Any]:
        job = dict(plan.request)
        # As the SageMaker SDK's own TrainingQueue sends them: of the service job, which passes them on.
        tags = {tag["Key"]: tag["Value"] for tag in job.pop("Tags", ())}
        payload = json.dumps(job, separators=(",", ":"))
        if (size := len(payload.encode())) > LONGEST_PAYLOAD:
            raise InvalidRequest(
                f"the request of row {task.position} ({task.key}) is {size:,} bytes, and a queue takes "
                f"{LONGEST_PAYLOAD:,}: shorten its environment, arguments and tags, or leave out --queue"
            )
        request: dict[str, Any] = {
            "jobName": attempt.name,
            "jobQueue": self._queue,
            "serviceJobType": KIND,
            "serviceRequestPayload": payload,
            "clientToken": attempt.name,
            # What failed is the grid's to judge, which knows other places: tried twice, it would pay twice.
            "retryStrategy": {"attempts": 1},
            "tags": tags,
        }
        if self._share:
            request["shareIdentifier"] = self._share
            request["schedulingPriority"] = min(HIGHEST_PRIORITY, max(0, task.priority))
        return request

    def _submit(self, request: Mapping[str, Any]) -> None:
        name = request["jobName"]
        try:
            self._ids[name] = self._call("submit_service_job", **request)["jobId"]
        except ServiceError:
            # Rejected as the second of its token, or its answer lost: the job is there nevertheless. Where this
            # question has no answer either its own error counts, by which nobody knows.
            if self._find(name) is None:
                raise

    def describe(self, name: str) -> Description:
        """Return what is known of a job; of one that has ended, the payload is removed."""
        answer = self._call("describe_service_job", jobId=self._id(name))
        description = description_of(name, answer, self._training_job(name, answer))
        if description.status.is_terminal:
            # By the call that was sent: a job that never had instances has no training job to ask.
            remove_payload(json.loads(answer["serviceRequestPayload"]), name, self._service)
        return description

    def _training_job(self, name: str, answer: Mapping[str, Any]) -> Description | None:
        training_job = training_job_of(answer)
        if training_job is None:
            return None
        self._training_jobs[name] = training_job
        try:
            return read(TRAINING, self._service.describe(TRAINING, training_job))
        except JobNotFound:
            # Batch deletes those that found no capacity.
            return None

    def page(self, contains: str, token: str | None) -> Page:
        """Return a page of the queue's jobs, the latest first."""
        # Not by JOB_NAME, which would be fewer: those come "grouped by the job name", and a sweep ends where jobs are
        # older than its own. https://docs.aws.amazon.com/batch/latest/APIReference/API_ListServiceJobs.html
        answer = self._list("AFTER_CREATED_AT", "0", **({} if token is None else {"nextToken": token}))
        now = self._service.clock.now()
        for summary in answer["jobSummaryList"]:
            if summary["jobName"].startswith(contains):
                self._learn(summary)
        return Page(
            jobs=tuple(listed_of(summary, now) for summary in answer["jobSummaryList"]), token=answer.get("nextToken")
        )

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """Return the last value of a metric, of the jobs whose training jobs were come across."""
        rows = {self._training_jobs[name]: name for name in names if name in self._training_jobs}
        values = self._region.rates(list(rows), metric) if rows else {}
        return {rows[training_job]: value for training_job, value in values.items()}

    def outcomes(self, attempt: Attempt) -> Mapping[str, RowOutcome]:
        """Return what the job's record says of its rows: its folder has the attempt's name, whatever the job's."""
        return self._region.outcomes(attempt)

    def stop(self, name: str) -> None:
        """End a job, whether it runs or waits.

        Raises:
            JobNotFound: The queue does not know it.
        """
        self._call("terminate_service_job", jobId=self._id(name), reason=WHY)

    def _id(self, name: str) -> str:
        identifier = self._ids.get(name) or self._find(name)
        if identifier is None:
            raise JobNotFound(f"the queue {self._queue} in {self._service.region} has no job {name!r}")
        return identifier

    def _find(self, name: str) -> str | None:
        for summary in self._list("JOB_NAME", name)["jobSummaryList"]:
            # The filter knows no capitals; hashes in names do not either, but names of grids do.
            if summary["jobName"] == name:
                self._learn(summary)
                return str(summary["jobId"])
        return None

    def _learn(self, summary: Mapping[str, Any]) -> None:
        self._ids[summary["jobName"]] = summary["jobId"]
        training_job = training_job_of(summary)
        if training_job is not None:
            self._training_jobs[summary["jobName"]] = training_job

    def _list(self, name: str, value: str, **more: Any) -> Any:
        filters = [{"name": name, "values": [value]}]
        return self._call("list_service_jobs", jobQueue=self._queue, filters=filters, maxResults=PAGE, **more)

    def _call(self, operation: str, **parameters: Any) -> Any:
        return self._service.call("batch", operation, **parameters)

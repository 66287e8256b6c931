"""Batch's operations on service jobs: each of them becomes training jobs of the embedded SageMaker."""

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from raysm.local.server.batch import answers
from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.queues import listed_jobs, queue_for
from raysm.local.server.batch.records import BatchJob, BatchJobs
from raysm.local.server.batch.resources import Resources
from raysm.local.server.batch.retry import check_strategy
from raysm.local.server.batch.run import BatchRun
from raysm.local.server.batch.training_work import payload_of

__all__ = ["SERVICE_JOB", "ServiceOperations"]

SERVICE_JOB = "service-job"


class ServiceOperations:
    """All operations on service jobs."""

    def __init__(self, jobs: BatchJobs, resources: Resources, run: BatchRun) -> None:
        """Have ``run`` carry them out."""
        self._jobs, self._resources, self._run = jobs, resources, run
        self._lock = threading.Lock()
        self.operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "SubmitServiceJob": self._submit,
            "DescribeServiceJob": lambda request, region: answers.describe_service(self._job(request, region)),
            "ListServiceJobs": self._list,
            "TerminateServiceJob": self._terminate,
            "UpdateServiceJob": self._update,
        }

    def _job(self, request: Mapping[str, Any], region: str) -> BatchJob:
        job = self._jobs.get(request["jobId"], region)
        # Ids are of one kind here; Batch, too, answers of each by its own operations alone.
        if job.kind != SERVICE_JOB:
            raise client_error(f"Job {request['jobId']} is no service job: ask DescribeJobs")
        return job

    def _submit(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        queue = queue_for(self._resources, region, request, "serviceEnvironmentOrder")
        check_strategy(request.get("retryStrategy"))
        # Read once before there is a job: one that could never become a training job is refused, and does not fail.
        payload_of(request)
        for key in ("quotaShareName", "preemptionConfiguration"):
            if request.get(key) is not None:
                raise client_error(f"the embedded Batch has no quota shares: leave {key} out, or take shareIdentifier")
        # Looked for and added at once: two requests of one token may come at one moment.
        with self._lock:
            earlier = self._sent_before(request, queue.arn)
            if earlier is not None:
                return answers.submitted(earlier)
            job = BatchJob(
                id=str(uuid.uuid4()),
                kind=SERVICE_JOB,
                name=request["jobName"],
                region=region,
                queue=queue.arn,
                request={name: value for name, value in request.items() if name != "tags"},
                tags=request.get("tags") or {},
                created_s=self._jobs.clock.now(),
                priority=request.get("schedulingPriority") or 0,
            )
            self._jobs.add([job])
        self._run.wake()
        return answers.submitted(job)

    def _sent_before(self, request: Mapping[str, Any], queue: str) -> BatchJob | None:
        """Return the job of a request that was sent before, by its token."""
        token = request.get("clientToken")
        if not token:
            return None
        for job in self._jobs.all():
            if job.kind == SERVICE_JOB and job.queue == queue and job.request.get("clientToken") == token:
                # A token of another request is a mistake of its sender: the first job would be taken for the second.
                if job.request["serviceRequestPayload"] != request["serviceRequestPayload"]:
                    raise client_error(f"the clientToken {token} was used for another request, job {job.id}")
                return job
        return None

    def _list(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if not request.get("jobQueue"):
            raise client_error("ListServiceJobs needs a jobQueue")
        queue = self._resources.get("job-queue", region, request["jobQueue"])
        jobs = [job for job in self._jobs.all() if job.kind == SERVICE_JOB and job.queue == queue.arn]
        return listed_jobs(jobs, request, answers.summarize_service)

    def _terminate(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        self._run.end(self._job(request, region), request["reason"])
        return {}

    def _update(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        job = self._job(request, region)
        return answers.submitted(self._jobs.update(job.id, priority=request["schedulingPriority"]))

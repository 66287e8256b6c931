"""The Batch job that runs, or ran, a grid: kept beside the grid's copies, asked for what has become of it."""

import json
from dataclasses import dataclass

from raysm.client.service import Service
from raysm.errors import InvalidConfig, ServiceError
from raysm.grid.shared.lease import Objects
from raysm.request.codec import from_json, to_json

__all__ = ["SentController", "last_sent", "remember"]

OBJECT = "batch-job.json"

ENDED = ("SUCCEEDED", "FAILED")


@dataclass(frozen=True, kw_only=True, slots=True)
class SentController:
    """One that was submitted."""

    id: str
    """As Batch names it."""
    queue: str
    """Name or ARN of its job queue."""
    region: str
    """Of both."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"the Batch job {self.id} of the queue {self.queue} in {self.region}"

    def status(self, service: Service) -> tuple[str, str]:
        """Return its status, as Batch says it, and the reason; both empty of one that Batch has forgotten.

        Raises:
            ServiceError: Batch does not answer.
        """
        # Batch forgets jobs that have ended after some days.
        jobs = service.call("batch", "describe_jobs", jobs=[self.id])["jobs"]
        return (str(jobs[0]["status"]), str(jobs[0].get("statusReason") or "")) if jobs else ("", "")

    def is_open(self, service: Service) -> bool:
        """Whether it waits or runs; raises as ``status``."""
        return self.status(service)[0] not in ("", *ENDED)

    def check(self, service: Service) -> None:
        """Return while it waits or runs, or has ended well.

        Raises:
            ServiceError: It has failed; the message says why. Or Batch does not answer.
        """
        status, reason = self.status(service)
        if status == "FAILED":
            raise ServiceError(
                f"{self} has failed: {reason or 'Batch says no reason'}; its lines are in the log group "
                "/aws/batch/job, and the same command submits it again"
            )


def remember(controller: SentController, objects: Objects) -> None:
    """Keep which job runs a grid.

    Raises:
        ServiceError: It cannot be written.
    """
    objects.put(OBJECT, json.dumps(to_json(controller), indent=1).encode())


def last_sent(objects: Objects) -> SentController | None:
    """Return the job that was submitted last; None of a grid that Batch has never run.

    Raises:
        InvalidConfig: What is kept cannot be read.
        ServiceError: S3 does not answer.
    """
    read = objects.read(OBJECT)
    if read is None:
        return None
    try:
        return from_json(SentController, json.loads(read.content), OBJECT)
    except ValueError as error:
        raise InvalidConfig(f"{OBJECT} in {objects.place} cannot be read: {error}") from error

"""The queue and the job definition of a controller: their names flow in, what Batch has of these names flows out.

All is asked for before anything is made: a job that nobody can run would wait in its queue for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.grid.batch_job.asked import ControllerJob

__all__ = ["Definition", "check_queue", "definition_of"]

VCPUS, MEMORY_MIB = "1", "2048"
"""Of a definition that raysm registers. A controller waits nearly always; of 100,000 rows it has 100 MB in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A job definition."""

    name: str
    """By which a job names it."""
    container: Mapping[str, Any]
    """Its containerProperties."""
    registration: Mapping[str, Any] | None = None
    """The call that makes it; None of one that there is."""

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that its containers have."""
        listed = [*(self.container.get("environment") or ()), *(self.container.get("secrets") or ())]
        return frozenset(item["name"] for item in listed)

    def made(self, service: Service) -> str:
        """Return what a job names; it is registered where it is not there yet.

        Raises:
            ServiceError: Batch refuses it.
        """
        if self.registration is None:
            return self.name
        return str(service.call("batch", "register_job_definition", **self.registration)["jobDefinitionArn"])


def check_queue(job: ControllerJob, service: Service) -> None:
    """Refuse a queue that runs no controller.

    Raises:
        InvalidRequest: There is none of this name, it is for training jobs, or it is disabled.
        ServiceError: Batch does not answer.
    """
    queues = service.call("batch", "describe_job_queues", jobQueues=[job.job_queue])["jobQueues"]
    where = f"the job queue {job.job_queue!r} in {service.region}"
    if not queues:
        raise InvalidRequest(f"there is no such thing as {where}; aws batch describe-job-queues lists those there")
    (queue,) = queues
    if not queue.get("computeEnvironmentOrder"):
        raise InvalidRequest(
            f"{where} is for training jobs, and runs no programs: name one of EC2 or Fargate as --job-queue"
        )
    if queue["state"] != "ENABLED":
        raise InvalidRequest(f"{where} is {queue['state']}; enable it, or name another --job-queue")
    if queue.get("schedulingPolicyArn"):
        raise InvalidRequest(f"{where} has a scheduling policy, and a controller no share; name one without")


def definition_of(job: ControllerJob, service: Service) -> Definition:
    """Return the definition of a controller: one that there is, or how it is registered.

    Raises:
        InvalidRequest: There is none and no image to register one of, it runs no single container, or it has no role.
        ServiceError: Batch does not answer.
    """
    latest = _latest(job.definition, service)
    if job.image is not None:
        return _of_image(job, latest, service)
    if latest is None:
        raise InvalidRequest(
            f"there is no active job definition {job.definition!r} in {service.region}, and no image to register one "
            "of: name one that there is (--job-definition), or an image with raysm, and its role (--job-image, "
            "--job-role)"
        )
    container = latest.get("containerProperties")
    if not container:
        raise InvalidRequest(
            f"the job definition {job.definition!r} has no containerProperties: a controller is one container"
        )
    if service.target.is_billed and not container.get("jobRoleArn"):
        raise InvalidRequest(
            f"the job definition {job.definition!r} has no jobRoleArn, and its controller could send no job: register "
            "it with a role that may do what raysm doctor --on aws --role ROLE --policy user prints"
        )
    return Definition(name=job.definition, container=container)


def _latest(name: str, service: Service) -> Mapping[str, Any] | None:
    query = {"jobDefinitions": [name]} if ":" in name else {"jobDefinitionName": name}
    listed = service.call("batch", "describe_job_definitions", status="ACTIVE", **query)["jobDefinitions"]
    return max(listed, key=lambda each: int(each["revision"]), default=None)


def _of_image(job: ControllerJob, latest: Mapping[str, Any] | None, service: Service) -> Definition:
    if service.target.is_billed and job.job_role is None:
        raise InvalidRequest(
            "a controller sends jobs by a role of its own: name it beside the image, --job-role ARN (job_role)"
        )
    container = _container(job)
    # A revision for each grid would be one for each day's query.
    if latest is not None and container.items() <= (latest.get("containerProperties") or {}).items():
        return Definition(name=job.definition, container=container)
    registration = {
        "jobDefinitionName": job.definition,
        "type": "container",
        "platformCapabilities": ["FARGATE" if job.execution_role else "EC2"],
        "containerProperties": container,
    }
    return Definition(name=job.definition, container=container, registration=registration)


def _container(job: ControllerJob) -> dict[str, Any]:
    roles = {"jobRoleArn": job.job_role, "executionRoleArn": job.execution_role}
    return {
        "image": job.image,
        # Of itself it runs no grid: which one it is, each job says.
        "command": ["python3", "-m", "raysm", "grid", "take-up", "--help"],
        "resourceRequirements": [
            {"type": "VCPU", "value": VCPUS},
            {"type": "MEMORY", "value": MEMORY_MIB},
        ],
        **{name: role for name, role in roles.items() if role is not None},
        **_network(job),
    }


def _network(job: ControllerJob) -> dict[str, Any]:
    # Of EC2 it is refused. Of Fargate it is said either way: a definition that has an address is not one without.
    if job.execution_role is None:
        return {}
    return {"networkConfiguration": {"assignPublicIp": "ENABLED" if job.assign_public_ip else "DISABLED"}}

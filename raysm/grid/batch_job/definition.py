"""The job of AWS Batch that runs a grid's controller, as the user asks for it, and the definition it needs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.service import Service
from raysm.errors import InvalidRequest

__all__ = ["ControllerJob", "DEFINITION", "Definition", "MOST_ATTEMPTS", "check_queue", "definition_of"]

DEFINITION = "raysm-grid-controller"
"""Name of the job definition that raysm registers where the user names none."""

MOST_ATTEMPTS = 10
"""Of Batch: https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html"""

NAME = re.compile(r"arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127}")
REVISION = re.compile(r"(arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127})(:\d+)?")
ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/.+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerJob:
    """The job of AWS Batch that runs a grid in the place of this machine.

    Either ``job_definition`` names one that there is, or raysm registers one of ``image`` and ``job_role``.

    Raises:
        InvalidRequest: A name or a role cannot be, roles are given without an image, or a public address without
            Fargate.
    """

    job_queue: str
    """Name or ARN of the job queue: one of EC2 or Fargate, not one of training jobs."""
    job_definition: str | None = None
    """Name, ``NAME:REVISION`` or ARN; None is ``raysm-grid-controller``."""
    image: str | None = None
    """URI of an image with raysm, ``containers/Dockerfile.batch`` for example; None is that of the definition."""
    job_role: str | None = None
    """ARN of the role by which the controller sends jobs; of a definition that raysm registers (``jobRoleArn``)."""
    execution_role: str | None = None
    """ARN of the role by which Fargate brings the image (``executionRoleArn``); None is a queue of EC2."""
    assign_public_ip: bool = False
    """Whether the controller has a public address there (``networkConfiguration``): in a public subnet of Fargate there
    is no other way to the image, nor to SageMaker."""
    attempts: int = MOST_ATTEMPTS
    """Times that Batch starts it, at most: a controller whose host is lost is started again."""

    def __post_init__(self) -> None:
        """Check the fields."""
        # Said here, with the value: Batch would say "ClientException", once the grid was made.
        if not NAME.fullmatch(self.job_queue):
            raise InvalidRequest(f"the job queue of a controller is named by its name or ARN, got {self.job_queue!r}")
        if self.job_definition is not None and not REVISION.fullmatch(self.job_definition):
            raise InvalidRequest(
                f"a job definition is named by its name, NAME:REVISION or ARN, got {self.job_definition!r}"
            )
        for name, role in (("job_role", self.job_role), ("execution_role", self.execution_role)):
            if role is not None and not ROLE.fullmatch(role):
                raise InvalidRequest(f"{name} is the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME, got {role!r}")
            if role is not None and self.image is None:
                raise InvalidRequest(
                    f"{name} is of a definition that raysm registers, which needs an image too; one that there is has "
                    "roles of its own"
                )
        if self.assign_public_ip and self.execution_role is None:
            raise InvalidRequest(
                "assign_public_ip is of a controller on Fargate, and there is no execution_role, by which it brings "
                "the image: give it too; on EC2 the subnet decides"
            )
        # A revision is never changed: of another image there would be another one, and this name would mean the old.
        if self.image is not None and ":" in (self.job_definition or ""):
            raise InvalidRequest(
                f"the image {self.image!r} is of a definition that raysm registers, and {self.job_definition!r} is one "
                "that there is: give a name without a revision, or leave the image out"
            )
        if not 1 <= self.attempts <= MOST_ATTEMPTS:
            raise InvalidRequest(f"attempts of a controller are 1 to {MOST_ATTEMPTS}, got {self.attempts}")

    @property
    def definition(self) -> str:
        """The definition's name."""
        return self.job_definition or DEFINITION


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

"""A job of AWS Batch that runs a grid's controller: what the user asks for, its definition, submission and status."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from raysm.client.service import Service
from raysm.errors import InvalidConfig, InvalidRequest, ServiceError
from raysm.grid.batch_job.handover import NOT_ALL_DONE, REFUSED, bundle_of, name_of
from raysm.grid.filling import Services
from raysm.grid.grid_request import GridRequest
from raysm.grid.local_grids import keep_handover
from raysm.grid.planning import Planned
from raysm.grid.rows.databases import database_of, kept_name, variable_of
from raysm.grid.running import open_running, written_to
from raysm.grid.shared.lease import Objects
from raysm.grid.shared.sharing import objects_of
from raysm.grid.store import path_of
from raysm.request import Input
from raysm.request.codec import from_json, to_json

DEFINITION = "raysm-grid-controller"
"""Name of the job definition that raysm registers by default."""

MOST_ATTEMPTS = 10
"""Limit of Batch: https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html"""

NAME = re.compile(r"arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127}")
REVISION = re.compile(r"(arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127})(:\d+)?")
ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/.+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerJob:
    """The job of AWS Batch that runs a grid instead of this machine.

    Either ``job_definition`` names an existing one, or raysm registers one with ``image`` and ``job_role``.

    Raises:
        InvalidRequest: A name or a role is invalid, roles are given without an image, or a public address without
            Fargate.
    """

    job_queue: str
    """Name or ARN of the job queue, of EC2 or Fargate, not of training jobs."""
    job_definition: str | None = None
    """Name, ``NAME:REVISION`` or ARN; None is ``raysm-grid-controller``."""
    image: str | None = None
    """URI of an image with raysm, for example of ``containers/Dockerfile.batch``; None is that of the definition."""
    job_role: str | None = None
    """ARN of the role by which the controller sends jobs (``jobRoleArn`` of a definition that raysm registers)."""
    execution_role: str | None = None
    """ARN of the role by which Fargate pulls the image (``executionRoleArn``); None for a queue of EC2."""
    assign_public_ip: bool = False
    """Whether the controller has a public address (``networkConfiguration``): in a public subnet of Fargate it reaches
    neither the image nor SageMaker without."""
    attempts: int = MOST_ATTEMPTS
    """How often Batch starts it at most: a controller whose host is lost is started again."""

    def __post_init__(self) -> None:
        """Check the fields, since Batch would say "ClientException" after the grid was made."""
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
        # Batch never changes a revision, so that this one could not get the image.
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


# -- queue and definition

VCPUS, MEMORY_MIB = "1", "2048"
"""Resources of a definition that raysm registers. A controller mostly waits, and has 100 MB for 100,000 rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A job definition: its name, its containerProperties, and the call that registers it, or None."""

    name: str
    container: Mapping[str, Any]
    registration: Mapping[str, Any] | None = None

    @property
    def variables(self) -> frozenset[str]:
        """Names of its containers' environment variables."""
        listed = [*(self.container.get("environment") or ()), *(self.container.get("secrets") or ())]
        return frozenset(item["name"] for item in listed)

    def made(self, service: Service) -> str:
        """Register it if necessary; return the name that a job uses.

        Raises:
            ServiceError: Batch refuses it.
        """
        if self.registration is None:
            return self.name
        return str(service.call("batch", "register_job_definition", **self.registration)["jobDefinitionArn"])


def check_queue(job: ControllerJob, service: Service) -> None:
    """Check that the queue runs controllers.

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
    """Return the definition of a controller: an existing one, or one to register.

    Raises:
        InvalidRequest: There is none and no image to register one, it runs no single container, or it has no role.
        ServiceError: Batch does not answer.
    """
    name = job.definition
    query = {"jobDefinitions": [name]} if ":" in name else {"jobDefinitionName": name}
    listed = service.call("batch", "describe_job_definitions", status="ACTIVE", **query)["jobDefinitions"]
    latest = max(listed, key=lambda each: int(each["revision"]), default=None)
    if job.image is not None:
        return _of_image(job, latest, service)
    if latest is None:
        raise InvalidRequest(
            f"there is no active job definition {name!r} in {service.region}, and no image to register one of: name "
            "one that there is (--job-definition), or an image with raysm, and its role (--job-image, --job-role)"
        )
    container = latest.get("containerProperties")
    if not container:
        raise InvalidRequest(f"the job definition {name!r} has no containerProperties: a controller is one container")
    if service.target.is_billed and not container.get("jobRoleArn"):
        raise InvalidRequest(
            f"the job definition {name!r} has no jobRoleArn, and its controller could send no job: register "
            "it with a role that may do what raysm doctor --on aws --role ROLE --policy user prints"
        )
    return Definition(name=name, container=container)


def _of_image(job: ControllerJob, latest: Mapping[str, Any] | None, service: Service) -> Definition:
    if service.target.is_billed and job.job_role is None:
        raise InvalidRequest(
            "a controller sends jobs by a role of its own: name it beside the image, --job-role ARN (job_role)"
        )
    roles = {"jobRoleArn": job.job_role, "executionRoleArn": job.execution_role}
    container: dict[str, Any] = {
        "image": job.image,
        # Each job overrides it with its grid.
        "command": ["python3", "-m", "raysm", "grid", "take-up", "--help"],
        "resourceRequirements": [{"type": "VCPU", "value": VCPUS}, {"type": "MEMORY", "value": MEMORY_MIB}],
        **{name: role for name, role in roles.items() if role is not None},
    }
    # EC2 refuses it. On Fargate it is always stated, since a definition with an address differs from one without.
    if job.execution_role is not None:
        container["networkConfiguration"] = {"assignPublicIp": "ENABLED" if job.assign_public_ip else "DISABLED"}
    # Not a new revision for each grid.
    if latest is not None and container.items() <= (latest.get("containerProperties") or {}).items():
        return Definition(name=job.definition, container=container)
    registration = {
        "jobDefinitionName": job.definition,
        "type": "container",
        "platformCapabilities": ["FARGATE" if job.execution_role else "EC2"],
        "containerProperties": container,
    }
    return Definition(name=job.definition, container=container, registration=registration)


# -- the submitted job

OBJECT = "batch-job.json"

ENDED = ("SUCCEEDED", "FAILED")


@dataclass(frozen=True, kw_only=True, slots=True)
class SentController:
    """A controller that was submitted."""

    id: str
    """Batch's ID."""
    queue: str
    region: str

    def __str__(self) -> str:
        return f"the Batch job {self.id} of the queue {self.queue} in {self.region}"

    def status(self, service: Service) -> tuple[str, str]:
        """Return Batch's status and reason; both are empty some days after the end, when Batch forgets the job.

        Raises:
            ServiceError: Batch does not answer.
        """
        jobs = service.call("batch", "describe_jobs", jobs=[self.id])["jobs"]
        return (str(jobs[0]["status"]), str(jobs[0].get("statusReason") or "")) if jobs else ("", "")

    def is_open(self, service: Service) -> bool:
        """Whether it waits or runs; raises as ``status``."""
        return self.status(service)[0] not in ("", *ENDED)

    def check(self, service: Service) -> None:
        """Check that it has not failed.

        Raises:
            ServiceError: It has failed, or Batch does not answer.
        """
        status, reason = self.status(service)
        if status == "FAILED":
            raise ServiceError(
                f"{self} has failed: {reason or 'Batch says no reason'}; its lines are in the log group "
                "/aws/batch/job, and the same command submits it again"
            )


def remember(controller: SentController, objects: Objects) -> None:
    """Keep which job runs a grid; raises ServiceError if it cannot be written."""
    objects.put(OBJECT, json.dumps(to_json(controller), indent=1).encode())


def last_sent(objects: Objects) -> SentController | None:
    """Return the job that was submitted last, or None.

    Raises:
        InvalidConfig: The object is malformed.
        ServiceError: S3 does not answer.
    """
    read = objects.read(OBJECT)
    if read is None:
        return None
    try:
        return from_json(SentController, json.loads(read.content), OBJECT)
    except ValueError as error:
        raise InvalidConfig(f"{OBJECT} in {objects.place} cannot be read: {error}") from error


# -- submission


def check_inputs(grid: Planned) -> None:
    """Check that no input is a path of this machine, since the controller uploads inputs.

    Raises:
        InvalidRequest: An input is one.
    """
    for where, uri in _inputs(grid):
        # Templates are checked with the row's job.
        if "://" not in uri and not uri.startswith(("job:", "{")):
            raise InvalidRequest(
                f"{where} is {uri!r}, a path of this machine, which no Batch job reaches: bring it to S3, and give its "
                "URI"
            )


def _inputs(grid: Planned) -> Iterator[tuple[str, str]]:
    shared = grid.request.template.options.get("inputs") or {}
    for channel, item in shared.items():
        yield f"the input {channel!r}", item.uri if isinstance(item, Input) else str(item)
    for task in grid.tasks:
        for channel, uri in task.addresses.items():
            yield f"row {task.position + 1} ({task.key}): its input {channel!r}", uri


def check_database(request: GridRequest, definition: Definition) -> None:
    """Check that the controller reaches the database that states are written back to; the rows are read here.

    Raises:
        InvalidRequest: The database is this machine's, or the job's definition lacks the variable with its address.
    """
    if not request.rules.write_back:
        return
    on = written_to(request)
    if kept_name(on) is None:
        raise InvalidRequest(
            "what becomes of the rows cannot be written back by a Batch job to an open connection, or to an address "
            "with a password: name the database by env:NAME, or by the ARN of a secret"
        )
    # A variable may hold the path of a file.
    database = database_of(on)
    if database.is_here:
        raise InvalidRequest(
            f"{database.name} is of this machine, where no Batch job can write back to it: leave --write-back "
            "(write_back) out, or name a database that a Batch job reaches"
        )
    variable = variable_of(on)
    if variable is not None and variable not in definition.variables:
        raise InvalidRequest(
            f"the database is what the variable {variable} says, which the job definition {definition.name!r} does not "
            "have: give it one, as a secret, or leave --write-back (write_back) out"
        )


def send(
    grid: Planned, job: ControllerJob, services: Services = Service, *, goes_on: bool = False
) -> SentController | None:
    """Have a job of AWS Batch run a grid; return the job, or None if nothing of the grid is left to do.

    Args:
        grid: The planned grid.
        job: The job.
        services: Returns the service of a target.
        goes_on: Whether a grid that its first failures have paused goes on.

    Raises:
        InvalidRequest: Something is invalid; nothing was made.
        LeaseLost: A controller runs the grid.
        ServiceError: S3 or Batch refuses, or cannot be reached.
    """
    if grid.request.shared is False:
        raise InvalidRequest(
            "a grid that Batch runs is found by its record in the target's bucket: leave --no-shared (shared=False) out"
        )
    check_inputs(grid)
    # The controller finds the grid by its shared copy.
    grid = replace(grid, request=replace(grid.request, shared=True))
    request = grid.request
    services = functools.lru_cache(services)
    service = services(request.template.target)
    check_queue(job, service)
    definition = definition_of(job, service)
    check_database(request, definition)
    bundle = bundle_of(grid)
    objects = objects_of(request.name, service, request.template.output_kms_key)
    # A job that waits in its queue has no lease yet, by which a second one would be refused.
    last = last_sent(objects)
    if last is not None and last.is_open(service):
        raise InvalidRequest(
            f"the grid {request.name!r} has a controller already, {last}: raysm grid watch {request.name} follows it, "
            f"raysm grid stop {request.name} ends it"
        )
    running = open_running(request, grid.tasks, grid.facts, services, goes_on=goes_on, planned_usd=grid.plan.usd)
    try:
        if running.store.is_over():
            return None
        objects.put(name_of(bundle), bundle)
        prefix = running.store.grid().prefix
    finally:
        # Released before the controller starts, which must not find the grid held.
        running.close()
    call = _call(job, definition.made(service), prefix, f"{objects.place}/{name_of(bundle)}", service)
    controller = SentController(
        id=service.call("batch", "submit_job", **call)["jobId"], queue=job.job_queue, region=service.region
    )
    remember(controller, objects)
    keep_handover(path_of(request.name), request.template.target)
    return controller


def _call(job: ControllerJob, definition: str, prefix: str, bundle: str, service: Service) -> dict[str, Any]:
    command = ["python3", "-m", "raysm", "grid", "take-up", bundle, "--on", service.target.kind]
    # These ends would be the same at each attempt; all others are the host's.
    final = [{"onExitCode": str(code), "action": "EXIT"} for code in (REFUSED, NOT_ALL_DONE)]
    return {
        "jobName": f"{prefix}controller",
        "jobQueue": job.job_queue,
        "jobDefinition": definition,
        "containerOverrides": {
            "command": command,
            # Some hosts do not tell a container its region.
            "environment": [{"name": "AWS_DEFAULT_REGION", "value": service.region}],
        },
        "retryStrategy": {"attempts": job.attempts, "evaluateOnExit": final},
    }

"""A job of AWS Batch that runs a grid's controller: options, definition, submission and status."""

import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from raysm.core.client.service import Service
from raysm.core.protocol.names import CONTROLLER_DEFINITION
from raysm.core.request import Input
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.batch_job.grid_secret import Seal, agree_on_secret
from raysm.features.grid.batch_job.handover import NOT_ALL_DONE, REFUSED, bundle_of, name_of
from raysm.features.grid.batch_job.state import RemoteState, folder_of, recall
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.local_grids import GridTarget, SentController, keep_target, read_target
from raysm.features.grid.plan import PlannedGrid
from raysm.features.grid.running import open_running, written_to
from raysm.features.grid.sources.databases import database_of, kept_name, variable_of
from raysm.features.grid.store.database import this_process
from raysm.features.grid.store.store import path_of
from raysm.features.grid.template import Services

MAX_ATTEMPTS = 10
"""Limit of AWS Batch:
https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html"""

NAME = re.compile(r"arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127}")
REVISION = re.compile(r"(arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127})(:\d+)?")
ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/.+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerJob:
    """The job of AWS Batch that runs a grid instead of this machine.

    Either ``job_definition`` names an existing one, or raysm registers one with ``image`` and
    ``job_role``.

    Raises:
        InvalidRequest: A name or a role is invalid, a role is given without an image, or a public
            address without ``execution_role``.
    """

    job_queue: str
    """Name or ARN of the job queue, which must be of EC2 or Fargate."""
    job_definition: str | None = None
    """Name, ``NAME:REVISION`` or ARN; None means ``raysm-grid-controller``."""
    image: str | None = None
    """URI of an image with raysm, for example of ``containers/Dockerfile.batch``; None takes the
    definition's."""
    job_role: str | None = None
    """ARN of the role with which the controller sends jobs, the ``jobRoleArn`` of a definition that
    raysm registers."""
    execution_role: str | None = None
    """ARN of the role with which Fargate pulls the image (``executionRoleArn``); None for a queue
    of EC2."""
    assign_public_ip: bool = False
    """True gives the controller a public address (``networkConfiguration``). In a public subnet of
    Fargate it needs one to reach its image and SageMaker."""
    attempts: int = MAX_ATTEMPTS
    """Most starts by Batch, which starts a controller again if its host is lost."""

    def __post_init__(self) -> None:
        """Check the fields here: Batch would raise ClientException after the grid was created."""
        if not NAME.fullmatch(self.job_queue):
            raise InvalidRequest(
                f"job_queue must be the name or ARN of a job queue, got {self.job_queue!r}"
            )
        if self.job_definition is not None and not REVISION.fullmatch(self.job_definition):
            raise InvalidRequest(
                f"job_definition must be a name, NAME:REVISION or ARN, got {self.job_definition!r}"
            )
        for name, role in (("job_role", self.job_role), ("execution_role", self.execution_role)):
            if role is not None and not ROLE.fullmatch(role):
                raise InvalidRequest(
                    f"{name} must be the ARN of a role, "
                    f"arn:aws:iam::ACCOUNT:role/NAME, got {role!r}"
                )
            if role is not None and self.image is None:
                raise InvalidRequest(
                    f"{name} is for a definition that raysm registers, which needs an image; "
                    "existing ones have roles"
                )
        if self.assign_public_ip and self.execution_role is None:
            raise InvalidRequest(
                "assign_public_ip is for a controller on Fargate, which needs an execution_role "
                "to pull the image: give both; on EC2 the subnet decides"
            )
        # Batch never changes a revision, so the revision cannot get the image.
        if self.image is not None and ":" in (self.job_definition or ""):
            raise InvalidRequest(
                f"the image {self.image!r} needs a definition that raysm registers, "
                f"but {self.job_definition!r} is an existing revision: "
                "give a name without a revision, or leave the image out"
            )
        if not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidRequest(f"attempts must be 1 to {MAX_ATTEMPTS}, got {self.attempts}")

    @property
    def definition(self) -> str:
        """The definition's name."""
        return self.job_definition or CONTROLLER_DEFINITION


# -- the job definition

VCPUS = "1"
MEMORY_MIB = "2048"
"""Resources of a definition that raysm registers. A controller mostly waits, and uses 100 MB for
100,000 rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A job definition: its name, its containerProperties, and the call that registers it, or None.

    The call is None if the definition exists.
    """

    name: str
    container: Mapping[str, Any]
    registration: Mapping[str, Any] | None = None

    @property
    def variables(self) -> frozenset[str]:
        listed = [
            *(self.container.get("environment") or ()),
            *(self.container.get("secrets") or ()),
        ]
        return frozenset(item["name"] for item in listed)

    def made(self, service: Service) -> str:
        """Register it if necessary; return the name that a job uses."""
        if self.registration is None:
            return self.name
        return str(
            service.call("batch", "register_job_definition", **self.registration)[
                "jobDefinitionArn"
            ]
        )


def definition_of(job: ControllerJob, service: Service) -> Definition:
    """Return the definition of a controller: an existing one, or one to register."""
    name = job.definition
    query = {"jobDefinitions": [name]} if ":" in name else {"jobDefinitionName": name}
    listed = service.call("batch", "describe_job_definitions", status="ACTIVE", **query)[
        "jobDefinitions"
    ]
    latest = max(listed, key=lambda each: int(each["revision"]), default=None)
    if job.image is not None:
        return _of_image(job, latest, service)
    if latest is None:
        raise InvalidRequest(
            f"there is no active job definition {name!r} in {service.region}, "
            "and no image to register one: give an existing one (--job-definition), "
            "or an image with raysm and its role (--job-image, --job-role)"
        )
    container = latest.get("containerProperties")
    if not container:
        raise InvalidRequest(
            f"the job definition {name!r} has no containerProperties; "
            "a controller needs exactly one container"
        )
    if service.target.is_billed and not container.get("jobRoleArn"):
        raise InvalidRequest(
            f"the job definition {name!r} has no jobRoleArn, "
            "which its controller needs to send jobs: register it with a role that has the "
            "policy of raysm doctor --on aws --role ROLE --policy user"
        )
    return Definition(name=name, container=container)


def _of_image(job: ControllerJob, latest: Mapping[str, Any] | None, service: Service) -> Definition:
    if service.target.is_billed and job.job_role is None:
        raise InvalidRequest(
            "a controller sends jobs with its own role: "
            "give --job-role ARN (job_role) with the image"
        )
    roles = {"jobRoleArn": job.job_role, "executionRoleArn": job.execution_role}
    container: dict[str, Any] = {
        "image": job.image,
        # Each job overrides the command with its grid.
        "command": ["python3", "-m", "raysm", "grid", "take-up", "--help"],
        "resourceRequirements": [
            {"type": "VCPU", "value": VCPUS},
            {"type": "MEMORY", "value": MEMORY_MIB},
        ],
        **{name: role for name, role in roles.items() if role is not None},
    }
    # EC2 refuses networkConfiguration. On Fargate it is always set, so that definitions with and
    # without differ.
    if job.execution_role is not None:
        container["networkConfiguration"] = {
            "assignPublicIp": "ENABLED" if job.assign_public_ip else "DISABLED"
        }
    # Reuse the latest revision instead of registering one for each grid.
    if (
        latest is not None
        and container.items() <= (latest.get("containerProperties") or {}).items()
    ):
        return Definition(name=job.definition, container=container)
    registration = {
        "jobDefinitionName": job.definition,
        "type": "container",
        "platformCapabilities": ["FARGATE" if job.execution_role else "EC2"],
        "containerProperties": container,
    }
    return Definition(name=job.definition, container=container, registration=registration)


# -- submission


def check_inputs(grid: PlannedGrid) -> None:
    """Check that no input is a path of this machine, since the controller uploads inputs."""
    for where, uri in _inputs(grid):
        # URIs with columns are checked with the row's job.
        if "://" not in uri and not uri.startswith(("job:", "{")):
            raise InvalidRequest(
                f"{where} is {uri!r}, a path of this machine, "
                "which a Batch job cannot read: upload it to S3"
            )


def _inputs(grid: PlannedGrid) -> Iterator[tuple[str, str]]:
    common = grid.request.template.options.get("inputs") or {}
    for channel, item in common.items():
        yield f"the input {channel!r}", item.uri if isinstance(item, Input) else str(item)
    for row in grid.rows:
        for channel, uri in row.addresses.items():
            yield f"{row.label}: its input {channel!r}", uri


def check_database(request: GridRequest, definition: Definition) -> None:
    """Check that the controller reaches the database for write-back.

    The rows are read on this machine.
    """
    if not request.rules.write_back:
        return
    on = written_to(request)
    if kept_name(on) is None:
        raise InvalidRequest(
            "a Batch job cannot write back to an open connection or an address with a password: "
            "name the database by env:NAME or by the ARN of a secret"
        )
    # A variable may hold the path of a file.
    database = database_of(on)
    if database.is_here:
        raise InvalidRequest(
            f"a Batch job cannot write back to {database.name} on this machine: "
            "leave --write-back (write_back) out, or name a database that a Batch job reaches"
        )
    variable = variable_of(on)
    if variable is not None and variable not in definition.variables:
        raise InvalidRequest(
            f"the job definition {definition.name!r} lacks the variable {variable} with the "
            "database's address: add it, as a secret, or leave --write-back (write_back) out"
        )


def send(
    grid: PlannedGrid, job: ControllerJob, services: Services = Service, *, goes_on: bool = False
) -> SentController | None:
    """Submit a job of AWS Batch that runs a grid; return None if nothing is left to do."""
    check_inputs(grid)
    request = grid.request
    services = functools.lru_cache(services)
    service = services(request.template.target)
    path = path_of(request.name)
    definition = definition_of(job, service)
    check_database(request, definition)
    bundle = bundle_of(grid)
    kept = read_target(path)
    last = None if kept is None else kept.controller
    # A job that waits in its queue has no lease yet that would refuse a second job.
    if last is not None and last.is_open(service):
        raise InvalidRequest(
            f"the grid {request.name!r} already has a controller, {last}; follow it with raysm "
            f"grid watch {request.name}, or end it with raysm grid stop {request.name}"
        )
    running = open_running(grid, services, goes_on=goes_on)
    with contextlib.closing(running):
        database = running.store.database
        if running.store.rows.are_final():
            return None
        prefix = running.store.grid().prefix
        now = running.clock.now()
        database.take_lease(this_process(), now)
        folder = folder_of(prefix, service, request.template.output_kms_key)
        seal = Seal(agree_on_secret(path, folder.parameter), folder.place)
        folder.put(name_of(bundle), bundle)
        # First the note, so that whatever ends this process, the next command takes the grid back.
        # Then a lease that only taking it back ends, so that no process of this machine runs the
        # grid meanwhile.
        target = GridTarget(target=request.template.target, away=folder.place)
        keep_target(path, target)
        database.lend_lease("a job of AWS Batch")
        RemoteState(folder, running.store, seal).hand_over()
        call = _call(
            job, definition.made(service), prefix, f"{folder.place}/{name_of(bundle)}", service
        )
        try:
            submitted = service.call("batch", "submit_job", **call)
        except ServiceError:
            # If Batch took the job after all, it finds no grid and ends.
            recall(running.store, path, folder)
            raise
        controller = SentController(
            id=submitted["jobId"], queue=job.job_queue, region=service.region
        )
        keep_target(path, replace(target, controller=controller))
        return controller


def _call(
    job: ControllerJob, definition: str, prefix: str, bundle: str, service: Service
) -> dict[str, Any]:
    command = ["python3", "-m", "raysm", "grid", "take-up", bundle, "--on", service.target.kind]
    # These exits would repeat at each attempt; all others are failures of the host.
    final = [{"onExitCode": str(code), "action": "EXIT"} for code in (REFUSED, NOT_ALL_DONE)]
    return {
        "jobName": f"{prefix}controller",
        "jobQueue": job.job_queue,
        "jobDefinition": definition,
        "containerOverrides": {
            "command": command,
            # Some hosts do not set the region in a container.
            "environment": [{"name": "AWS_DEFAULT_REGION", "value": service.region}],
        },
        "retryStrategy": {"attempts": job.attempts, "evaluateOnExit": final},
    }

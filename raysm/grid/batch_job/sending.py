"""Hand a grid over to AWS Batch: check what the job can reach, submit it, and follow it."""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from raysm.client.service import Service
from raysm.errors import InvalidConfig, InvalidRequest, ServiceError
from raysm.grid.batch_job.definition import ControllerJob, Definition, check_queue, definition_of
from raysm.grid.batch_job.handover import bundle_of, name_of
from raysm.grid.batch_job.taking_up import NOT_ALL_DONE, REFUSED
from raysm.grid.grid_request import GridRequest
from raysm.grid.local_grids import keep_handover
from raysm.grid.planning import Planned
from raysm.grid.rows.databases import database_of, kept_name, variable_of
from raysm.grid.running import open_running, written_to
from raysm.grid.sending_rows import Services
from raysm.grid.shared.lease import Objects
from raysm.grid.shared.sharing import objects_of
from raysm.grid.store import path_of
from raysm.request import Input
from raysm.request.codec import from_json, to_json

__all__ = ["SentController", "check_database", "check_inputs", "last_sent", "remember", "send"]

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


def check_inputs(grid: Planned) -> None:
    """Refuse paths of this machine: whoever prepares a job uploads them, and that is the controller.

    Raises:
        InvalidRequest: An input is one.
    """
    for where, uri in _inputs(grid):
        # What a template makes of a row's columns shows only with the row's job, whose refusal names it.
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
    """Refuse to write back to where the controller cannot: the rows themselves are read here, and once.

    Args:
        request: What is asked for.
        definition: Of the job that is to write.

    Raises:
        InvalidRequest: The database is this machine's, or the job has no way to find it.
    """
    if not request.rules.write_back:
        return
    on = written_to(request)
    if kept_name(on) is None:
        raise InvalidRequest(
            "what becomes of the rows cannot be written back by a Batch job to an open connection, or to an address "
            "with a password: name the database by env:NAME, or by the ARN of a secret"
        )
    # By what the name stands for here: a variable may hold the path of a file.
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
    """Have a job of AWS Batch run a grid.

    Args:
        grid: As it was planned.
        job: The job.
        services: How a target is reached.
        goes_on: Whether a grid that its first failures have paused goes on.

    Returns:
        The job; None where nothing of the grid is left to do.

    Raises:
        InvalidRequest: Something cannot be; nothing was made.
        LeaseLost: A controller runs the grid.
        ServiceError: S3 or Batch refuses, or cannot be reached.
    """
    if grid.request.shared is False:
        raise InvalidRequest(
            "a grid that Batch runs is found by its record in the target's bucket: leave --no-shared (shared=False) out"
        )
    check_inputs(grid)
    # Also where a grid would not be shared by itself: its record is all that the controller has.
    grid = replace(grid, request=replace(grid.request, shared=True))
    services = functools.lru_cache(services)
    service = services(grid.request.template.target)
    check_queue(job, service)
    definition = definition_of(job, service)
    check_database(grid.request, definition)
    bundle = bundle_of(grid)
    objects = objects_of(grid.request.name, service, grid.request.template.output_kms_key)
    _check_alone(grid.request.name, objects, service)
    prefix = _made(grid, services, objects, bundle, goes_on=goes_on)
    if prefix is None:
        return None
    # Only now that nobody holds the grid: a controller that finds it held is told that another one runs it.
    call = _call(job, definition.made(service), prefix, f"{objects.place}/{name_of(bundle)}", service)
    controller = SentController(
        id=service.call("batch", "submit_job", **call)["jobId"], queue=job.job_queue, region=service.region
    )
    remember(controller, objects)
    keep_handover(path_of(grid.request.name), grid.request.template.target)
    return controller


def _made(grid: Planned, services: Services, objects: Objects, bundle: bytes, *, goes_on: bool) -> str | None:
    """Make the grid's record, or have its new rows join; return with what its names begin, None where it is over."""
    running = open_running(grid.request, grid.tasks, grid.facts, services, goes_on=goes_on, planned_usd=grid.plan.usd)
    try:
        # The same command again, and nothing new in its source: a container for nothing.
        if running.store.is_over():
            return None
        objects.put(name_of(bundle), bundle)
        return running.store.grid().prefix
    finally:
        running.close()


def _call(job: ControllerJob, definition: str, prefix: str, bundle: str, service: Service) -> dict[str, Any]:
    command = ["python3", "-m", "raysm", "grid", "take-up", bundle, "--on", service.target.kind]
    # An end by a refusal, or with rows that have failed, would be the same at each attempt; all others are of the host.
    final = [{"onExitCode": str(code), "action": "EXIT"} for code in (REFUSED, NOT_ALL_DONE)]
    return {
        "jobName": f"{prefix}controller",
        "jobQueue": job.job_queue,
        "jobDefinition": definition,
        "containerOverrides": {
            "command": command,
            # Not on every host a container is told where it is.
            "environment": [{"name": "AWS_DEFAULT_REGION", "value": service.region}],
        },
        "retryStrategy": {"attempts": job.attempts, "evaluateOnExit": final},
    }


def _check_alone(name: str, objects: Objects, service: Service) -> None:
    # A job that waits in its queue has no lease yet, by which a second one would be refused.
    last = last_sent(objects)
    if last is not None and last.is_open(service):
        raise InvalidRequest(
            f"the grid {name!r} has a controller already, {last}: raysm grid watch {name} follows it, raysm grid stop "
            f"{name} ends it"
        )

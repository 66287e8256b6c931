"""A grid handed over to AWS Batch: a planned grid flows in, the Batch job that runs its controller flows out.

The grid is made here, with its rows, and let go of; its record in S3 is what the controller takes up. What cannot be is
refused before either is made.
"""

import functools
from dataclasses import replace
from typing import Any

from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.grid import handed_over
from raysm.grid.batch_job.asked import ControllerJob
from raysm.grid.batch_job.bundle import bundle_of, name_of
from raysm.grid.batch_job.definition import check_queue, definition_of
from raysm.grid.batch_job.reach import check_database, check_inputs
from raysm.grid.batch_job.sent import SentController, last_sent, remember
from raysm.grid.batch_job.taking_up import NOT_ALL_DONE, REFUSED
from raysm.grid.planning import Planned
from raysm.grid.running import open_running
from raysm.grid.sending_rows import Services
from raysm.grid.shared.lease import Objects
from raysm.grid.shared.sharing import objects_of
from raysm.grid.store import path_of

__all__ = ["send"]


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
    handed_over.keep(path_of(grid.request.name), grid.request.template.target)
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

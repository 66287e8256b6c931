"""Send rows of a grid from the children of an AWS Batch array, without store or controller.

A job's name is derived from the request and the row, so that a child that Batch starts again finds the jobs that it has
sent. If an earlier job of a row has failed, the next job has the next number, like a controller's attempts.
"""

import base64
import functools
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from raysm.client.job.description import Status
from raysm.client.job.handle import Job, attach
from raysm.client.service import Service
from raysm.errors import InvalidRequest, JobNotFound
from raysm.grid.batch_job.state import folder_of, share_secret
from raysm.grid.filling import Services, preparing, secret_of, secret_path
from raysm.grid.grid_request import GridRequest
from raysm.grid.plan import own_region, reaching
from raysm.grid.records import GridRecord
from raysm.grid.running import identity_of
from raysm.grid.store import path_of
from raysm.grid.task import Attempt, Task
from raysm.request import Limits

RUN_CHARACTERS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class RowJob:
    task: Task
    region: str
    job: Job
    is_new: bool


class RowJobs:
    """Sends rows of a grid.

    Attributes:
        tasks: All rows.
    """

    def __init__(self, request: GridRequest, services: Services = Service) -> None:
        self.tasks = request.tasks()
        self._request = reaching(request, self.tasks, services)
        self._services: Services = functools.lru_cache(services)

    def send(self, task: Task) -> RowJob:
        """Send a row, unless it has a job that runs or is done."""
        # The row's own region first, since its data are there.
        region = task.region or next(iter(self._request.regions), None)
        region = region or own_region(self._request.template.target, self._services)
        if region is None:
            raise InvalidRequest(
                f"row {task.position} ({task.key}) names no region; give --regions, or a column region"
            )
        service = self._services(self._request.template.target.in_region(region))
        grid = self._grid(service)
        for number in itertools.count(1):
            attempt = self._attempt(grid, task, number, region)
            try:
                job = attach(attempt.name, service)
            except JobNotFound:
                make = preparing(self._request.template, grid, self._secret(grid, service), self._services)
                # Keep the payload if the answer is lost: the next try repeats this call.
                job = make(task, attempt).send(leaves_payload=True)
                return RowJob(task=task, region=region, job=job, is_new=True)
            # Read once, since it may change between two reads.
            status = job.status
            if not status.is_terminal or status is Status.COMPLETED:
                return RowJob(task=task, region=region, job=job, is_new=False)
        raise AssertionError("there is always one more number")

    def _attempt(self, grid: GridRecord, task: Task, number: int, region: str) -> Attempt:
        types = task.instance_types or self._request.instance_types
        if not types:
            raise InvalidRequest(f"row {task.position} ({task.key}) names no instance type; give --instance-type")
        limits = self._request.template.options.get("limits") or Limits()
        return Attempt(
            task=task.key,
            number=number,
            name=grid.job_name(task, number),
            region=region,
            # Only a controller chooses among several types.
            instance_type=types[0],
            count=task.count or self._request.count,
            spot=self._request.markets[0] if task.spot is None else task.spot,
            max_runtime_s=task.max_runtime_s or limits.max_runtime_s,
        )

    def _grid(self, service: Service) -> GridRecord:
        template = identity_of(self._request)
        digest = hashlib.sha256(f"{self._request.name}\n{template}".encode()).digest()
        return GridRecord(
            name=self._request.name,
            # Not random, since the children of an array must derive the same names.
            run=base64.b32encode(digest).decode().lower()[:RUN_CHARACTERS],
            state="open",
            why="",
            rules=self._request.rules,
            template=template,
            source="{}",
            created_s=0.0,
            goes_on=False,
            clock=service.clock,
        )

    def _secret(self, grid: GridRecord, service: Service) -> str:
        """Return the secret from which tokens are derived; the first child in a region writes it to the bucket."""
        path = path_of(self._request.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        share_secret(secret_path(path), folder_of(grid.prefix, service, self._request.template.output_kms_key))
        return secret_of(path)


def slice_of(tasks: list[Task], index: int, per_child: int) -> Iterator[Task]:
    first = index * per_child
    if not 0 <= first < len(tasks):
        children = -(-len(tasks) // per_child)
        raise InvalidRequest(
            f"there are no rows for index {index}: {len(tasks)} rows with {per_child} per child need an array of "
            f"{children} (indices 0 to {children - 1})"
        )
    yield from tasks[first : first + per_child]

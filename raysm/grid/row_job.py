"""One row of a grid as one job, sent by whoever has its index: the child of an AWS Batch array, above all.

A request and an index flow in, the row's job flows out. There is no store and no controller: the job's name is a
function of the request and the row, so that a child that Batch starts again finds what it has sent, and sends nothing
twice. Where the job of an earlier try has failed, the next one has the next number, as a controller's attempts have.
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
from raysm.grid.attempt import Attempt
from raysm.grid.grid_request import GridRequest
from raysm.grid.planning import own_region, reaching
from raysm.grid.records import GridRecord
from raysm.grid.running import identity_of
from raysm.grid.sending_rows import Services, preparing, secret_of, secret_path
from raysm.grid.shared.sharing import objects_of, share_secret
from raysm.grid.store import path_of
from raysm.grid.task import Task
from raysm.request import Limits

__all__ = ["RowJob", "RowJobs", "slice_of"]

RUN_CHARACTERS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class RowJob:
    """What became of a row."""

    task: Task
    """The row."""
    region: str
    """Where its job is."""
    job: Job
    """It."""
    is_new: bool
    """Whether it was sent now; else an earlier try had sent it."""


class RowJobs:
    """Sends rows of a grid, each by its place in the source.

    Attributes:
        tasks: All rows.
    """

    def __init__(self, request: GridRequest, services: Services = Service) -> None:
        """Read the rows; nothing is sent yet.

        Raises:
            InvalidRequest: They cannot be read.
        """
        self.tasks = request.tasks()
        self._request = reaching(request, self.tasks, services)
        self._services: Services = functools.lru_cache(services)

    def send(self, task: Task) -> RowJob:
        """Send a row, unless a job of it runs or is done.

        Raises:
            InvalidRequest: The row cannot be sent.
            ServiceError: As the service says.
        """
        region = self._region(task)
        service = self._services(self._request.template.target.in_region(region))
        grid = self._grid(service)
        for number in itertools.count(1):
            attempt = self._attempt(grid, task, number, region)
            try:
                job = attach(attempt.name, service)
            except JobNotFound:
                make = preparing(self._request.template, grid, self._secret(service), self._services)
                # Its payload stays where the answer is lost: the child that Batch starts next sends this very call.
                job = make(task, attempt).send(leaves_payload=True)
                return RowJob(task=task, region=region, job=job, is_new=True)
            # Once: it may end between two looks, and be neither.
            status = job.status
            if not status.is_terminal or status is Status.COMPLETED:
                return RowJob(task=task, region=region, job=job, is_new=False)
        raise AssertionError("there is always one more number")

    def _region(self, task: Task) -> str:
        # Its own before the grid's: a line of an array file says where its data lie.
        region = task.region or next(iter(self._request.regions), None)
        region = region or own_region(self._request.template.target, self._services)
        if region is None:
            raise InvalidRequest(
                f"row {task.position} ({task.key}) names no region; give --regions, or a column region"
            )
        return region

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
            # The first alone: who chooses among several has to know what the others take, as a controller does.
            instance_type=types[0],
            count=task.count or self._request.count,
            spot=self._request.markets[0] if task.spot is None else task.spot,
            max_runtime_s=task.max_runtime_s or limits.max_runtime_s,
        )

    def _grid(self, service: Service) -> GridRecord:
        template = identity_of(self._request)
        digest = hashlib.sha256(f"{self._request.name}\n{template}".encode()).digest()
        # Of what is asked for, and not drawn: the children of an array are on machines that share nothing.
        run = base64.b32encode(digest).decode().lower()[:RUN_CHARACTERS]
        return GridRecord(
            name=self._request.name,
            run=run,
            state="open",
            why="",
            rules=self._request.rules,
            template=template,
            source="{}",
            created_s=0.0,
            goes_on=False,
            clock=service.clock,
        )

    def _secret(self, service: Service) -> str:
        """Return the secret of which those of the jobs are made: the same on all machines, kept in the bucket."""
        objects = objects_of(self._request.name, service, self._request.template.output_kms_key)
        path = path_of(self._request.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # The first child of a region makes it; the others find it there.
        objects.make_bucket()
        share_secret(secret_path(path), objects)
        return secret_of(path)


def slice_of(tasks: list[Task], index: int, per_child: int) -> Iterator[Task]:
    """Yield the rows of one child of an array.

    Args:
        tasks: All rows.
        index: Of the child, from 0.
        per_child: How many rows each has.

    Raises:
        InvalidRequest: There is none for this child.
    """
    # An array that is larger than its rows is its sender's mistake: a child without work would look like a success.
    first = index * per_child
    if not 0 <= first < len(tasks):
        children = -(-len(tasks) // per_child)
        raise InvalidRequest(
            f"there are no rows for index {index}: {len(tasks)} rows, {per_child} a child, are an array of {children} "
            f"(indices 0 to {children - 1})"
        )
    yield from tasks[first : first + per_child]

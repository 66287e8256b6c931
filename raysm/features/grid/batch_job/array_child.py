"""Send a grid's rows from the children of an AWS Batch array, without store or controller.

The module also lists these jobs.

A job's name is derived from the request and the row, so that a child that Batch starts again finds
the jobs that it has sent. If an earlier job of a row has failed, the next job has the next number,
like a controller's attempts.
"""

import base64
import functools
import hashlib
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from raysm.core.client.job.description import Status, outputs_of, read
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import in_parallel
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.names import ROW_TAG
from raysm.core.request import Limits
from raysm.errors import InvalidRequest, JobNotFound
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.batch_job.grid_secret import Parameter, agree_on_secret
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.plan import own_region, reaching
from raysm.features.grid.region import RATES_PAGE, read_rates
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.row_view import GridRow
from raysm.features.grid.running import identity_of
from raysm.features.grid.store.store import GridRecord, GridState, path_of, prefix_of
from raysm.features.grid.template import Services, is_tag_of, preparing

RUN_CHARACTERS = 6

STATES = {
    Status.COMPLETED: RowState.DONE,
    Status.FAILED: RowState.FAILED,
    Status.STOPPED: RowState.STOPPED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RowJob:
    row: Row
    region: str
    job: Job
    is_new: bool


class RowJobs:
    """Sends rows of a grid.

    Attributes:
        rows: All rows.
    """

    def __init__(self, request: GridRequest, services: Services = Service) -> None:
        self.rows = request.read_rows()
        self._request = reaching(request, self.rows, services)
        self._services: Services = functools.lru_cache(services)

    def send(self, row: Row) -> RowJob:
        """Send a row, unless it has a job that runs or is done."""
        # The row's own region first, since its data are there.
        region = row.region or next(iter(self._request.regions), None)
        region = region or own_region(self._request.template.target, self._services)
        if region is None:
            raise InvalidRequest(f"{row.label} names no region; give --regions, or a column region")
        service = self._services(self._request.template.target.in_region(region))
        grid = self._grid(service)
        for number in itertools.count(1):
            attempt = self._attempt(grid, row, number, region)
            try:
                job = attach(attempt.name, service)
            except JobNotFound:
                make = preparing(
                    self._request.template, grid, self._secret(grid, service), self._services
                )
                # Keep the payload if the answer is lost: the next try repeats this call.
                job = make(row, attempt).send(leaves_payload=True)
                return RowJob(row=row, region=region, job=job, is_new=True)
            # Another row's, whose key has the same hash.
            tag = _tag_of(service, job.arn)
            if tag and not is_tag_of(tag, grid.name, row):
                continue
            # Read once, since it may change between two reads.
            status = job.status
            if not status.is_terminal or status is Status.COMPLETED:
                return RowJob(row=row, region=region, job=job, is_new=False)
        raise AssertionError("there is always one more number")

    def _attempt(self, grid: GridRecord, row: Row, number: int, region: str) -> Attempt:
        types = row.instance_types or self._request.instance_types
        if not types:
            raise InvalidRequest(f"{row.label} names no instance type; give --instance-type")
        limits = self._request.template.options.get("limits") or Limits()
        return Attempt(
            row_key=row.key,
            number=number,
            name=grid.job_name(row, number),
            region=region,
            # Only a controller chooses among several types.
            instance_type=types[0],
            count=row.count or self._request.count,
            spot=self._request.markets[0] if row.spot is None else row.spot,
            max_runtime_s=row.max_runtime_s or limits.max_runtime_s,
        )

    def _grid(self, service: Service) -> GridRecord:
        template = identity_of(self._request)
        digest = hashlib.sha256(f"{self._request.name}\n{template}".encode()).digest()
        return GridRecord(
            name=self._request.name,
            # Not random, since the children of an array must derive the same names.
            run=base64.b32encode(digest).decode().lower()[:RUN_CHARACTERS],
            state=GridState.OPEN,
            why="",
            rules=self._request.rules,
            template=template,
            source="{}",
            created_s=0.0,
            goes_on=False,
            clock=service.clock,
        )

    def _secret(self, grid: GridRecord, service: Service) -> str:
        """Return the secret that tokens are derived from.

        The first child in a region writes the secret into a parameter.
        """
        path = path_of(self._request.name)
        private_folder(path.parent.parent, path.parent.name)
        return agree_on_secret(path, Parameter.of(service, grid.prefix.rstrip("-")))


def slice_of(rows: list[Row], index: int, per_child: int) -> Iterator[Row]:
    first = index * per_child
    if not 0 <= first < len(rows):
        children = -(-len(rows) // per_child)
        raise InvalidRequest(
            f"there are no rows for index {index}: {len(rows)} rows with {per_child} per "
            f"child need an array of {children} (indices 0 to {children - 1})"
        )
    yield from rows[first : first + per_child]


@dataclass(frozen=True, kw_only=True, slots=True)
class SentRow(GridRow):
    """A row as the service knows it. What only a grid's file has is None or empty."""

    index: int
    """Number of the row in its source, from 0."""
    result: str | None
    """URI of the folder with the result of a done row."""


def sent_rows(grid: str, services: Iterable[Service], rate: str | None = None) -> list[SentRow]:
    """Return the rows of a grid that have jobs in these regions, in the order of their source.

    The tags of the jobs name the grid and the row, since children of an array share no store.

    Args:
        grid: Its name.
        services: One for each region.
        rate: A metric, whose last value of each job is the rate of its row; None reads none.
    """
    prefix = prefix_of(grid)
    rows = list[SentRow]()
    for service in services:
        jobs: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for item in service.summaries(TRAINING, contains=prefix, limit=sys.maxsize):
            name, _, number = str(item[TRAINING.name_key]).rpartition("-a")
            if name.startswith(prefix) and number.isdecimal():
                jobs[name].append((int(number), item[TRAINING.arn_key]))
        last = itertools.chain.from_iterable(
            _last_jobs(service, name, numbered) for name, numbered in jobs.items()
        )
        found = [
            row for row in in_parallel(functools.partial(_read_row, grid, service), last) if row
        ]
        rows += found if rate is None else _with_rates(found, service, rate)
    return sorted(rows, key=lambda row: (row.index, row.sent_s or 0.0))


def _with_rates(rows: list[SentRow], service: Service, metric: str) -> Iterator[SentRow]:
    for begin in range(0, len(rows), RATES_PAGE):
        page = rows[begin : begin + RATES_PAGE]
        rates = read_rates(service, [str(row.job) for row in page], metric)
        yield from (replace(row, rate=rates.get(str(row.job))) for row in page)


def _last_jobs(
    service: Service, name: str, jobs: list[tuple[int, str]]
) -> Iterator[tuple[str, int, str]]:
    """Yield name, number and ARN of the last job of each row whose key has this hash."""
    if len(jobs) == 1:
        yield name, *jobs[0]
        return
    last: dict[str, tuple[int, str]] = {}
    for number, arn in sorted(jobs):
        last[_tag_of(service, arn).partition("/")[2]] = (number, arn)
    for number, arn in last.values():
        yield name, number, arn


def _tag_of(service: Service, arn: str) -> str:
    return service.tags(arn).get(ROW_TAG, "")


def _read_row(grid: str, service: Service, last: tuple[str, int, str]) -> SentRow | None:
    name, number, arn = last
    tag = _tag_of(service, arn).split("/", 2)
    if tag[1:2] != [grid]:
        return None
    job = read(TRAINING, service.describe(TRAINING, f"{name}-a{number}"))
    times = [None if at is None else at.timestamp() for at in (job.created, job.started, job.ended)]
    return SentRow(
        index=int(tag[0]),
        key=tag[2],
        state=STATES.get(job.status, RowState.PLACED),
        reason=job.reason,
        attempts=number,
        job=job.name,
        region=service.region,
        instance_type=job.instances[0][0],
        count=job.instances[0][1],
        spot=bool(job.answer.get("EnableManagedSpotTraining")),
        sent_s=times[0],
        started_s=times[1],
        ended_s=times[2],
        usd=None,
        rate=None,
        parameters={},
        result=outputs_of(job) if job.status is Status.COMPLETED else None,
    )

"""What is known of every job of Batch: one JSON file each, written whole at every change.

::

    HOME/batch/jobs/ID.json     the request, its status and its attempts; of an array, one more for each child
"""

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from raysm.contract.home import Clock
from raysm.contract.store import read_json
from raysm.errors import InvalidConfig
from raysm.local.server.batch.model import client_error
from raysm.local.server.moto_internals import ACCOUNT
from raysm.local.server.record_files import RecordFiles

__all__ = ["ACTIVE", "FINAL", "LOST", "BatchJob", "BatchJobs", "Try"]

ACTIVE = ("STARTING", "RUNNING")
"""Statuses in which an attempt goes on, in their order."""
FINAL = ("SUCCEEDED", "FAILED")
LOST = "the embedded Batch that ran the job was killed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Try:
    """One attempt of a job; moments are seconds since the epoch."""

    resource: str
    """Log stream of its program."""
    begun_s: float
    """When it was handed over."""
    started_s: float | None = None
    """When it ran."""
    stopped_s: float | None = None
    """When it ended; None while it goes on."""
    reason: str = ""
    """Why."""
    exit_code: int | None = None
    """Of a program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchJob:
    """One job, at one moment."""

    id: str
    """A UUID; of an array's child, with its index: ``UUID:3``."""
    kind: str
    """As its ARN says: ``job``."""
    name: str
    """Of the user's, and not unique."""
    region: str
    """To which the request was sent."""
    queue: str
    """ARN."""
    request: Mapping[str, Any]
    """As it was sent, with what its definition says."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """As they are now."""
    created_s: float
    """When it was sent."""
    status: str = "SUBMITTED"
    """``SUBMITTED``, ``PENDING``, ``RUNNABLE``, one of ACTIVE, one of FINAL."""
    reason: str = ""
    """Why it is what it is."""
    priority: int = 0
    """Of those that wait, the highest begins."""
    started_s: float | None = None
    """When the latest attempt began to run."""
    stopped_s: float | None = None
    """When it ended."""
    tries: tuple[Try, ...] = ()
    """All attempts."""
    size: int | None = None
    """Of an array: how many children."""
    parent: str | None = None
    """Of a child: the array's id."""
    index: int | None = None
    """Of a child: from 0."""
    ordered: str | None = None
    """Why it is to end before its time; None is not."""
    is_cancelled: bool = False
    """Whether it was ended before it ran."""

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:batch:{self.region}:{ACCOUNT}:{self.kind}/{self.id}"

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL


class BatchJobs:
    """All of one home; every method may be called from any thread.

    Attributes:
        clock: By which changes are dated.
        files: Writes them.
    """

    def __init__(self, home: Path, clock: Clock) -> None:
        """Read what is there; those that a server left unfinished have failed."""
        self.clock = clock
        self.files = RecordFiles()
        self._folder = home / "batch" / "jobs"
        # Once: a home that was deleted is not to come back by its last jobs.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._jobs: dict[str, BatchJob] = {}
        # Apart: a queue of a day may have thousands that have ended, and each look is at those that have not.
        self._open: dict[str, BatchJob] = {}
        for path in self._folder.glob("*.json"):
            # One that cannot be read is passed over, as if it were not there.
            with contextlib.suppress(InvalidConfig, TypeError, KeyError):
                job = _from_json(read_json(path))
                self._jobs[job.id] = job
        for job in list(self._jobs.values()):
            if not job.final:
                self.update(job.id, status="FAILED", reason=LOST, stopped_s=clock.now())

    def add(self, jobs: list[BatchJob]) -> None:
        """Keep new ones."""
        with self._lock:
            # Written first: a job that no file tells of would be lost with the server.
            for job in jobs:
                self.files.write(*self._file(job))
                self._jobs[job.id] = self._open[job.id] = job

    def get(self, named: str, region: str) -> BatchJob:
        """Return the job of an id or an ARN.

        Raises:
            ApiError: There is none in this region.
        """
        job = self.find(named)
        # An id is unique everywhere, and yet a job is known in its own region alone.
        if job is None or job.region != region:
            raise client_error(f"Job {named} does not exist in {region}")
        return job

    def find(self, named: str) -> BatchJob | None:
        """Return the job of an id or an ARN; None where there is none."""
        with self._lock:
            # Of an ARN the id is the last part, a child's index with it.
            return self._jobs.get(named.rpartition("/")[2])

    def all(self) -> list[BatchJob]:
        """Return all."""
        with self._lock:
            return list(self._jobs.values())

    def open(self) -> list[BatchJob]:
        """Return those that have not ended, in the order in which they were sent."""
        with self._lock:
            return list(self._open.values())

    def children(self, parent: str) -> list[BatchJob]:
        """Return the children of an array, by their indices."""
        # By their ids: a look at all jobs for each of many arrays would be thousands of thousands.
        size = self._jobs[parent].size or 0
        with self._lock:
            return [self._jobs[f"{parent}:{index}"] for index in range(size)]

    def update(self, job_id: str, **changes: Any) -> BatchJob:
        """Change fields; if the disk is full the change is in memory until ``files`` can write it."""
        with self._lock:
            job = self._jobs[job_id] = replace(self._jobs[job_id], **changes)
            if job.final:
                self._open.pop(job_id, None)
            else:
                self._open[job_id] = job
            self.files.write_or_retry(f"Batch job {job_id}", *self._file(job))
            return job

    def update_try(self, job_id: str, **changes: Any) -> BatchJob:
        """Change fields of the latest attempt."""
        with self._lock:
            tries = self._jobs[job_id].tries
            return self.update(job_id, tries=(*tries[:-1], replace(tries[-1], **changes)))

    def _file(self, job: BatchJob) -> tuple[Path, str, Path]:
        return self._folder / f"{job.id}.json", json.dumps(asdict(job)), self._folder


def _from_json(data: Mapping[str, Any]) -> BatchJob:
    # A record lives longer than the raysm that wrote it: what this one does not know is passed over.
    names = {item.name for item in fields(BatchJob)}
    values = {name: value for name, value in data.items() if name in names}
    values["tries"] = tuple(Try(**item) for item in values.get("tries", ()))
    return BatchJob(**values)

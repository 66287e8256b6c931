"""What is known of every job: one JSON file each, written whole at every change, so that a restart finds it.

::

    HOME/jobs/training/NAME/record.json     the request, the statuses and their times, the outcome
    HOME/jobs/training/NAME/streams/        its logs (``log_files``)
    HOME/jobs/training/NAME/work/           what its instances need while they live
    HOME/jobs/processing/NAME/…             the same
    HOME/jobs/training@REGION/NAME/…        of a job that was sent to another region than the server's own clients'
"""

import contextlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from raysm.contract.home import Clock
from raysm.contract.job_api import JobApi, api_of
from raysm.contract.store import make_folder, put, read_json
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.local.job_spec import REGION
from raysm.local.server.validation import ApiError, not_found

__all__ = ["FINAL", "JobRecord", "RecordFiles", "Records", "Transition"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Unwritten:
    title: str
    content: str
    within: Path


class RecordFiles:
    """Writes the files of records; every method may be called from any thread."""

    def __init__(self) -> None:
        """Begin with nothing to write."""
        self._lock = threading.Lock()
        self._unwritten: dict[Path, _Unwritten] = {}

    def write(self, path: Path, content: str, within: Path) -> None:
        """Write ``content`` to ``path``, readable by this user only.

        Args:
            path: Made or replaced.
            content: All of it.
            within: A folder above ``path`` that is never made.

        Raises:
            OSError: The disk is full, or ``within`` does not exist.
        """
        with self._lock:
            put(path, content, mode=0o600, within=within)
            self._unwritten.pop(path, None)

    def write_or_retry(self, title: str, path: Path, content: str, within: Path) -> None:
        """Write ``content`` as ``write`` does; if that fails, log it and have ``retry`` write it.

        Args:
            title: What the record is of, for the log: ``training job a``.
            path: As in ``write``, and so the others.
            content: All of it.
            within: A folder above ``path``.
        """
        try:
            self.write(path, content, within)
        except FileNotFoundError as error:
            # The folder was deleted, and must not come back.
            LOG.warning("the record of the %s was not written: %s", title, error)
        except OSError as error:
            LOG.warning("the record of the %s was not written, and will be tried again: %s", title, error)
            with self._lock:
                self._unwritten[path] = _Unwritten(title, content, within)

    def forget(self, folder: Path) -> None:
        """Do not write the files below ``folder`` again: their record was deleted."""
        with self._lock:
            self._unwritten = {path: one for path, one in self._unwritten.items() if not path.is_relative_to(folder)}

    def retry(self) -> None:
        """Write the files again that could not be written."""
        with self._lock:
            for path, one in list(self._unwritten.items()):
                try:
                    put(path, one.content, mode=0o600, within=one.within)
                except FileNotFoundError:
                    pass
                except OSError:
                    continue
                else:
                    # The first warning may be missing: the log is usually on the same disk.
                    LOG.warning("the record of the %s, which a full disk had refused, is written now", one.title)
                del self._unwritten[path]

    def unwritten(self) -> list[str]:
        """Return what the records are of that could not be written so far."""
        with self._lock:
            return [one.title for one in self._unwritten.values()]


FINAL = ("Completed", "Failed", "Stopped")
"""Statuses that no job leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    """One secondary status and its time."""

    status: str
    """``Starting``, ``Downloading`` …"""
    start_s: float
    """Since the epoch."""
    end_s: float | None = None
    """None while it lasts."""
    message: str = ""
    """For people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One job, at one moment."""

    kind: str
    """Of the API that runs it, ``training``."""
    name: str
    """Of the job, unique within its kind and region."""
    arn: str
    """Of the job."""
    region: str
    """To which the request was sent."""
    request: Mapping[str, Any]
    """As it was sent, without its tags."""
    instance_kind: str = "process"
    """What plays its instances."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """As they are now."""
    created_s: float
    """When the request was accepted."""
    modified_s: float
    """When anything changed last."""
    status: str = "InProgress"
    """``InProgress``, ``Stopping``, or one of FINAL."""
    secondary: str = "Starting"
    """The secondary status."""
    transitions: tuple[Transition, ...] = ()
    """All secondary statuses so far."""
    started_s: float | None = None
    """When its instances first ran."""
    ended_s: float | None = None
    """When the last of them was gone, and what they left was uploaded."""
    training_s: float = 0.0
    """Seconds for which its instances ran, in all attempts."""
    spot_saving: float = 0.0
    """The share of them that is not billed."""
    attempts: int = 0
    """How often its instances were started."""
    failure_reason: str | None = None
    """Of a Failed job, at most 1024 characters."""
    exit_message: str | None = None
    """Of a Processing job: what its containers left for whoever asks."""
    artifacts: str | None = None
    """URI of the model."""
    warm_pool: Mapping[str, Any] | None = None
    """Of a job whose instances are kept, or were: Status and what else Describe says of that."""
    metrics: tuple[Mapping[str, Any], ...] = ()
    """Last value of each metric: MetricName, Value, Timestamp."""

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL

    @property
    def api(self) -> JobApi:
        """The API that runs it."""
        return api_of(self.kind)


def _from_json(data: Mapping[str, Any]) -> JobRecord:
    # A record lives longer than the raysm that wrote it: what this one does not know is passed over.
    names = {item.name for item in fields(JobRecord)}
    values = {name: value for name, value in data.items() if name in names}
    values["transitions"] = tuple(Transition(**item) for item in values.get("transitions", ()))
    values["metrics"] = tuple(values.get("metrics", ()))
    return JobRecord(**values)


class Records:
    """All records of one home; every method may be called from any thread.

    Attributes:
        clock: By which changes are dated.
        files: Writes them.
    """

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        """Read what is there; a file that cannot be read is passed over, as if the job were not there."""
        self.clock = clock or Clock()
        self.files = RecordFiles()
        self._jobs = home / "jobs"
        self._jobs.mkdir(parents=True, exist_ok=True)
        # The folder itself, not its path: another one may come to stand there.
        self._opened = os.stat(self._jobs)
        # Reentrant: who holds the records changes them in the block.
        self._lock = threading.RLock()
        self._records: dict[tuple[str, JobApi, str], JobRecord] = {}
        for path in self._jobs.glob("*/*/record.json"):
            with contextlib.suppress(InvalidConfig, InvalidRequest, TypeError, KeyError, AttributeError):
                record = _from_json(read_json(path))
                self._records[record.region, record.api, record.name] = record

    def folder(self, api: JobApi, name: str, region: str = REGION) -> Path:
        """Return the folder of a job."""
        # A kind's own folder for each further region: names are unique in one alone.
        return self._jobs / (api.kind if region == REGION else f"{api.kind}@{region}") / name

    def add(self, record: JobRecord) -> None:
        """Keep a new job.

        Raises:
            ApiError: ResourceInUse, if there is one of its name.
        """
        with self._lock:
            existing = self._records.get((record.region, record.api, record.name))
            if existing is not None:
                raise ApiError(
                    "ResourceInUse",
                    f"{record.api.title} job names must be unique within an AWS account and region, and a "
                    f"{record.kind} job with this name already exists ({existing.arn})",
                )
            folder = self.folder(record.api, record.name, record.region)
            # Written first: a job that no file tells of would be there until the server ends, and never run.
            try:
                self._check_home()
                make_folder(folder, within=self._jobs)
                self.files.write(folder / "record.json", json.dumps(asdict(record)), folder)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._records[record.region, record.api, record.name] = record

    def _check_home(self) -> None:
        # A home that was deleted is not to come back by its last jobs, nor they into another one of its name.
        if not os.path.samestat(os.stat(self._jobs), self._opened):
            raise FileNotFoundError(f"{self._jobs} is another folder now")

    def _write_or_retry(self, record: JobRecord) -> None:
        title = f"{record.api.kind} job {record.name}"
        folder = self.folder(record.api, record.name, record.region)
        try:
            self._check_home()
        except OSError as error:
            LOG.warning("the record of the %s was not written: %s", title, error)
        else:
            self.files.write_or_retry(title, folder / "record.json", json.dumps(asdict(record)), folder)

    def get(self, api: JobApi, name: str, region: str = REGION) -> JobRecord:
        """Return a job as it is now.

        Raises:
            ApiError: There is none of that name.
        """
        with self._lock:
            record = self._records.get((region, api, name))
        if record is None:
            raise not_found(f"{api.kind} job {name}")
        return record

    def by_arn(self, arn: str) -> JobRecord:
        """Return the job of an ARN.

        Raises:
            ApiError: There is none.
        """
        for record in self.all():
            if record.arn == arn:
                return record
        raise not_found(arn)

    def all(self, api: JobApi | None = None, region: str | None = None) -> list[JobRecord]:
        """Return all jobs, or those of one API, or of one region."""
        with self._lock:
            # A list, not a view: jobs come and go while the caller walks it.
            return [
                record
                for record in self._records.values()
                if (api is None or record.api is api) and region in (None, record.region)
            ]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing change in the block: for a change that depends on what is there."""
        with self._lock:
            yield

    def update(self, api: JobApi, name: str, region: str = REGION, **changes: Any) -> JobRecord:
        """Change fields of a job; if the disk is full the change is in memory until ``files`` can write it."""
        with self._lock:
            record = replace(self.get(api, name, region), modified_s=self.clock.now(), **changes)
            # In memory first: the disk may refuse it.
            self._records[region, api, name] = record
            self._write_or_retry(record)
            return record

    def advance(self, record: JobRecord, secondary: str, message: str, **changes: Any) -> JobRecord:
        """Have a job enter a secondary status; the one before ends at the same moment."""
        now = self.clock.now()
        with self._lock:
            record = self.get(record.api, record.name, record.region)
            before = record.transitions
            if before and before[-1].end_s is None:
                before = (*before[:-1], replace(before[-1], end_s=now))
            final = changes.get("status", record.status) in FINAL
            entered = Transition(status=secondary, start_s=now, end_s=now if final else None, message=message)
            changes |= {"secondary": secondary, "transitions": (*before, entered)}
            return self.update(record.api, record.name, record.region, **changes)

    def explain(self, record: JobRecord, message: str) -> None:
        """Say something else of the secondary status that lasts."""
        with self._lock:
            transitions = self.get(record.api, record.name, record.region).transitions
            # Who waits is asked ten times a second, and a record is written at every change.
            if transitions[-1].message != message:
                changed = (*transitions[:-1], replace(transitions[-1], message=message))
                self.update(record.api, record.name, record.region, transitions=changed)

    def delete(self, api: JobApi, name: str, region: str = REGION) -> None:
        """Forget a job and remove its folder."""
        with self._lock:
            self.get(api, name, region)
            del self._records[region, api, name]
            self.files.forget(self.folder(api, name, region))
            shutil.rmtree(self.folder(api, name, region), ignore_errors=True)

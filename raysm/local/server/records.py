"""The records of all jobs, one JSON file each.

It is written whole at every change, so that a restart finds it.

::

    HOME/jobs/training/NAME/record.json     the request, the statuses and their times, the outcome
    HOME/jobs/training/NAME/streams/        its logs (``log_service``)
    HOME/jobs/training/NAME/work/           what its instances need while they live
    HOME/jobs/processing/NAME/…             the same
    HOME/jobs/training@REGION/NAME/…        a job in another region than the default one
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
from typing import Any, TypeAlias

from raysm.core.protocol.home import JOBS, Clock, jobs_folder
from raysm.core.protocol.job_api import JobApi, api_of
from raysm.core.protocol.store import make_folder, put, read_json
from raysm.errors import InvalidConfig, InvalidRequest
from raysm.local.job_spec import REGION
from raysm.local.server.validation import ApiError, not_found

LOG = logging.getLogger(__name__)
FINAL = ("Completed", "Failed", "Stopped")
Key: TypeAlias = tuple[str, JobApi, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transition:
    status: str
    start_s: float
    end_s: float | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    kind: str
    name: str
    arn: str
    region: str
    request: Mapping[str, Any]
    instance_kind: str = "process"
    tags: Mapping[str, str] = field(default_factory=dict)
    created_s: float
    modified_s: float
    status: str = "InProgress"
    secondary: str = "Starting"
    transitions: tuple[Transition, ...] = ()
    started_s: float | None = None
    ended_s: float | None = None
    training_s: float = 0.0
    """Seconds for which its instances ran, in all attempts."""
    spot_saving: float = 0.0
    """The share of them that is not billed."""
    attempts: int = 0
    failure_reason: str | None = None
    exit_message: str | None = None
    artifacts: str | None = None
    metrics: tuple[Mapping[str, Any], ...] = ()
    """Last value of each metric: MetricName, Value, Timestamp."""

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def api(self) -> JobApi:
        return api_of(self.kind)

    @property
    def key(self) -> Key:
        return self.region, self.api, self.name


class Records:
    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        """Read the records; a file that cannot be read is skipped."""
        self.clock = clock or Clock()
        self._home = home
        self._jobs = home / JOBS
        self._jobs.mkdir(parents=True, exist_ok=True)
        # Identifies the folder, because another one may take its path.
        self._opened = os.stat(self._jobs)
        # Reentrant, because a holder of the records changes them.
        self._lock = threading.RLock()
        self._records: dict[Key, JobRecord] = {}
        # Records whose last change a full disk refused.
        self._unwritten: set[Key] = set()
        for path in self._jobs.glob("*/*/record.json"):
            with contextlib.suppress(
                InvalidConfig, InvalidRequest, TypeError, KeyError, AttributeError
            ):
                # Another version of raysm may have written fields that this one does not know.
                names = {item.name for item in fields(JobRecord)}
                values = {name: value for name, value in read_json(path).items() if name in names}
                values["transitions"] = tuple(
                    Transition(**item) for item in values.get("transitions", ())
                )
                values["metrics"] = tuple(values.get("metrics", ()))
                record = JobRecord(**values)
                self._records[record.key] = record

    def folder(self, api: JobApi, name: str, region: str = REGION) -> Path:
        return jobs_folder(self._home, api.kind, region) / name

    def add(self, record: JobRecord) -> None:
        with self._lock:
            existing = self._records.get(record.key)
            if existing is not None:
                raise ApiError(
                    "ResourceInUse",
                    f"{record.api.title} job names must be unique within an AWS account and "
                    f"region, and a {record.kind} job with this name already exists "
                    f"({existing.arn})",
                )
            folder = self.folder(record.api, record.name, record.region)
            # Write first, so that a job whose file cannot be written is refused.
            self._check_home()
            make_folder(folder, within=self._jobs)
            self._write(record)
            self._records[record.key] = record

    def _check_home(self) -> None:
        # A deleted home must not come back, and jobs must not write into a new home at its path.
        if not os.path.samestat(os.stat(self._jobs), self._opened):
            raise FileNotFoundError(f"{self._jobs} is another folder now")

    def _write(self, record: JobRecord) -> None:
        folder = self.folder(record.api, record.name, record.region)
        put(folder / "record.json", json.dumps(asdict(record)), mode=0o600, within=folder)

    def retry(self) -> None:
        with self._lock:
            for key in list(self._unwritten):
                try:
                    self._write(self._records[key])
                except FileNotFoundError:
                    pass
                except OSError:
                    continue
                else:
                    # The warning of ``update`` may be lost: the log is usually on the same disk.
                    LOG.warning(
                        "the record of the %s, which a full disk had refused, is written now",
                        _title(key),
                    )
                self._unwritten.discard(key)

    def unwritten(self) -> list[str]:
        with self._lock:
            return [_title(key) for key in self._unwritten]

    def get(self, api: JobApi, name: str, region: str = REGION) -> JobRecord:
        with self._lock:
            record = self._records.get((region, api, name))
        if record is None:
            raise not_found(f"{api.kind} job {name}")
        return record

    def by_arn(self, arn: str) -> JobRecord:
        for record in self.all():
            if record.arn == arn:
                return record
        raise not_found(arn)

    def all(self, api: JobApi | None = None, region: str | None = None) -> list[JobRecord]:
        with self._lock:
            return [
                record
                for record in self._records.values()
                if (api is None or record.api is api) and region in (None, record.region)
            ]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the records: no other thread can change them in the block."""
        with self._lock:
            yield

    def update(self, api: JobApi, name: str, region: str = REGION, **changes: Any) -> JobRecord:
        """Change fields of a job.

        If the disk is full, the change stays in memory until ``retry`` can write it.
        """
        with self._lock:
            record = replace(self.get(api, name, region), modified_s=self.clock.now(), **changes)
            self._records[record.key] = record
            try:
                self._check_home()
                self._write(record)
            except FileNotFoundError as error:
                # The folder was deleted, and must not come back.
                LOG.warning("the record of the %s was not written: %s", _title(record.key), error)
            except OSError as error:
                LOG.warning(
                    "the record of the %s was not written, and will be tried again: %s",
                    _title(record.key),
                    error,
                )
                self._unwritten.add(record.key)
            return record

    def advance(self, record: JobRecord, secondary: str, message: str, **changes: Any) -> None:
        """Enter a secondary status; the previous one ends at the same moment."""
        now = self.clock.now()
        with self._lock:
            record = self.get(record.api, record.name, record.region)
            before = record.transitions
            if before and before[-1].end_s is None:
                before = (*before[:-1], replace(before[-1], end_s=now))
            final = changes.get("status", record.status) in FINAL
            entered = Transition(
                status=secondary, start_s=now, end_s=now if final else None, message=message
            )
            changes |= {"secondary": secondary, "transitions": (*before, entered)}
            self.update(record.api, record.name, record.region, **changes)

    def explain(self, record: JobRecord, message: str) -> None:
        with self._lock:
            transitions = self.get(record.api, record.name, record.region).transitions
            # Called ten times a second for a waiting job, and each change is written.
            if transitions[-1].message != message:
                changed = (*transitions[:-1], replace(transitions[-1], message=message))
                self.update(record.api, record.name, record.region, transitions=changed)

    def delete(self, api: JobApi, name: str, region: str = REGION) -> None:
        with self._lock:
            self.get(api, name, region)
            del self._records[region, api, name]
            self._unwritten.discard((region, api, name))
            shutil.rmtree(self.folder(api, name, region), ignore_errors=True)


def _title(key: Key) -> str:
    return f"{key[1].kind} job {key[2]}"

"""What is known of every tuning job: one JSON file each, written whole at every change, as the records of jobs are.

::

    HOME/tuning/REGION/NAME/record.json     the request, its state, and its training jobs
"""

import contextlib
import json
import shutil
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from raysm.contract.clock import Clock
from raysm.contract.store import read_json
from raysm.errors import InvalidConfig
from raysm.local.server.api_error import ApiError
from raysm.local.server.record_files import RecordFiles
from raysm.local.server.tuning.trial import Assignment, Trial

__all__ = ["LOST", "Child", "TuningRecord", "TuningRecords", "missing"]

FINAL = ("Completed", "Failed", "Stopped")
LOST = "InternalServerError: the embedded SageMaker that ran the tuning job was killed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """One training job of a tuning job."""

    number: int
    """From 0, in the order in which they were launched."""
    name: str
    """Of the training job."""
    definition: str | None = None
    """DefinitionName of what it was launched by."""
    assignment: Assignment
    """The tuned hyperparameters."""
    losses: tuple[float, ...] = ()
    """What it reported, less is better; filled in when it has ended."""
    value: float | None = None
    """The objective in the end."""
    ended: bool = False
    """Whether that was looked at."""

    @property
    def objective_status(self) -> str:
        """As the API calls it."""
        if not self.ended:
            return "Pending"
        return "Failed" if self.value is None else "Succeeded"

    @property
    def trial(self) -> Trial:
        """As strategies see it."""
        loss = self.losses[-1] if self.value is not None and self.losses else None
        return Trial(number=self.number, assignment=self.assignment, losses=self.losses, ended=self.ended, loss=loss)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningRecord:
    """One tuning job, at one moment."""

    name: str
    """Unique within its region."""
    arn: str
    """Of the job."""
    region: str
    """To which the request was sent."""
    request: Mapping[str, Any]
    """CreateHyperParameterTuningJob, without its tags."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """As they are now; those of its training jobs are a copy of what they were."""
    seed: int
    """RandomSeed, or what was drawn where the request has none."""
    created_s: float
    """When it was taken in; from then on its time counts."""
    modified_s: float
    """When it changed last, but for what its training jobs say."""
    status: str = "InProgress"
    """``InProgress``, ``Stopping``, or one of FINAL."""
    enough: str = ""
    """Why no further training job is launched; empty while some may be."""
    converged_s: float | None = None
    """When it was seen that nothing better comes."""
    ended_s: float | None = None
    """When the last training job had ended."""
    failure_reason: str | None = None
    """Of a Failed one."""
    children: tuple[Child, ...] = ()
    """All training jobs, by their numbers."""

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL


class TuningRecords:
    """All of one home; every method may be called from any thread.

    Attributes:
        clock: By which changes are dated.
        files: Writes them.
    """

    def __init__(self, home: Path, clock: Clock) -> None:
        """Read what is there; those that a server left unfinished have failed."""
        self.clock = clock
        self.files = RecordFiles()
        self._folder = home / "tuning"
        # Once: a home that was deleted is not to come back by its last jobs.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._records: dict[tuple[str, str], TuningRecord] = {}
        for path in self._folder.glob("*/*/record.json"):
            # One that cannot be read is passed over, as if it were not there.
            with contextlib.suppress(InvalidConfig, TypeError, KeyError):
                record = _from_json(read_json(path))
                self._records[record.region, record.name] = record
        for record in self.all():
            if not record.final:
                self.update(record, status="Failed", failure_reason=LOST, ended_s=clock.now())

    def add(self, record: TuningRecord) -> None:
        """Keep a new one.

        Raises:
            ApiError: ResourceInUse, if there is one of its name.
        """
        with self._lock:
            existing = self._records.get((record.region, record.name))
            if existing is not None:
                raise ApiError(
                    "ResourceInUse",
                    "Hyper parameter tuning job names must be unique within an AWS account and region, and one with "
                    f"this name already exists ({existing.arn})",
                )
            self.files.write(self._path(record), json.dumps(asdict(record)), self._folder)
            self._records[record.region, record.name] = record

    def get(self, name: str, region: str) -> TuningRecord:
        """Return one as it is now.

        Raises:
            ApiError: There is none of that name.
        """
        with self._lock:
            record = self._records.get((region, name))
        if record is None:
            raise missing(name)
        return record

    def all(self, region: str | None = None) -> list[TuningRecord]:
        """Return all, or those of one region."""
        with self._lock:
            return [record for record in self._records.values() if region in (None, record.region)]

    def update(self, record: TuningRecord, **changes: Any) -> TuningRecord:
        """Change fields; if the disk is full the change is in memory until ``files`` can write it."""
        with self._lock:
            changed = replace(self.get(record.name, record.region), modified_s=self.clock.now(), **changes)
            self._records[record.region, record.name] = changed
            path, content = self._path(changed), json.dumps(asdict(changed))
            self.files.write_or_retry(f"tuning job {record.name}", path, content, self._folder)
            return changed

    def delete(self, record: TuningRecord) -> None:
        """Forget one."""
        with self._lock:
            self._records.pop((record.region, record.name), None)
            self.files.forget(self._path(record).parent)
            shutil.rmtree(self._path(record).parent, ignore_errors=True)

    def _path(self, record: TuningRecord) -> Path:
        return self._folder / record.region / record.name / "record.json"


def missing(name: str) -> ApiError:
    """Return what the service answers about a tuning job that is not there."""
    # Of another code than a training job's, by the API's model: ResourceNotFound.
    return ApiError("ResourceNotFound", f"Requested resource not found. (tuning job {name})", 400)


def _from_json(data: Mapping[str, Any]) -> TuningRecord:
    names = {item.name for item in fields(TuningRecord)}
    values = {name: value for name, value in data.items() if name in names}
    children = [{**item, "losses": tuple(item["losses"])} for item in values.get("children", ())]
    values["children"] = tuple(Child(**item) for item in children)
    return TuningRecord(**values)

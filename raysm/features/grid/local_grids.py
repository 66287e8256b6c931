"""Grids of this machine: their names, where their jobs are sent, and which Batch job runs them."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.core.client.service import Service
from raysm.core.protocol.store import put, read_json
from raysm.core.request import Target
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest, ServiceError, did_you_mean
from raysm.features.grid.store.store import Store, folder, path_of


@contextlib.contextmanager
def opened(name: str) -> Iterator[Store]:
    """Open the store of a grid.

    Raises:
        InvalidRequest: No grid has this name; the message has the names of existing grids.
    """
    path = path_of(name)
    if not path.exists():
        names = grid_names()
        hint = did_you_mean(path.stem, names) or (
            "; if an AWS Batch array sent its rows, "
            f"raysm grid rows {path.stem} --on aws --regions A,B lists them"
        )
        existing = ", ".join(names) or "none"
        raise InvalidRequest(
            f"there is no grid {path.stem!r} in {path.parent}; existing grids: {existing}{hint}"
        )
    store = Store(path)
    try:
        yield store
    finally:
        # Not Store.close, which releases a lease.
        store.database.close()


def grid_names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.db"))


def refuse_grid(arguments: Any, _service: Service, _console: object) -> bool:
    """Refuse the name of a grid where a job's is needed; return False if there is no such grid."""
    if arguments.job not in grid_names():
        return False
    raise InvalidRequest(
        f"{arguments.job} is a grid, which has a job for each row: raysm grid rows "
        f"{arguments.job} lists them, and raysm {arguments.command} takes the name of one"
    )


def only_grid() -> str:
    """Return the name of the only grid; InvalidRequest if there are several, or none."""
    names = grid_names()
    if len(names) != 1:
        raise InvalidRequest(f"name the grid; this machine has {', '.join(names) or 'none'}")
    return names[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class SentController:
    """A Batch job that runs a grid. Every call may raise ``ServiceError``."""

    id: str
    queue: str
    region: str

    def __str__(self) -> str:
        return f"the Batch job {self.id} of the queue {self.queue} in {self.region}"

    def _status(self, service: Service) -> tuple[str, str]:
        jobs = service.call("batch", "describe_jobs", jobs=[self.id])["jobs"]
        return (
            (str(jobs[0]["status"]), str(jobs[0].get("statusReason") or "")) if jobs else ("", "")
        )

    def is_open(self, service: Service) -> bool:
        return self._status(service)[0] not in ("", "SUCCEEDED", "FAILED")

    def check(self, service: Service) -> None:
        status, reason = self._status(service)
        if status == "FAILED":
            raise ServiceError(
                f"{self} has failed: {reason or 'Batch gives no reason'}; "
                "its log is in the log group /aws/batch/job; the same command submits it again"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class GridTarget:
    """Where a grid's jobs are sent, and by whom; stored beside the grid's file."""

    target: Target
    away: str | None = None
    """The folder in S3 that holds the grid's state while a Batch job runs it; None if this machine
    has the grid."""
    controller: SentController | None = None
    """The Batch job that was submitted last; None while it is being submitted."""


def keep_target(store: Path, target: GridTarget) -> None:
    put(store.with_suffix(".target"), json.dumps(to_json(target), indent=1))


def read_target(store: Path) -> GridTarget | None:
    """Return where a grid's jobs are sent; None if no controller ran the grid here."""
    path = store.with_suffix(".target")
    return from_json(GridTarget, read_json(path), str(path)) if path.exists() else None

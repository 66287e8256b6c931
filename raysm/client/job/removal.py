"""Remove records, logs, results and checkpoints of jobs of this machine. Nothing is removed on AWS.

Results that were brought to a folder of the user's stay, and so does everything that an active job reads.
"""

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from raysm.client.experiments.listing import cache_of
from raysm.client.job.chain import Chain
from raysm.client.job.description import Description
from raysm.client.job.handle import Job
from raysm.client.job.listing import Listed, jobs
from raysm.client.service import Service
from raysm.client.storage.places import shared_mark
from raysm.client.storage.s3 import Storage, file_path
from raysm.contract.names import FIRST_TAG, PROJECT_TAG, TASK_TAG
from raysm.errors import InvalidRequest, JobNotFound

__all__ = ["Usage", "check", "chosen", "descriptions", "removable", "remove", "usage"]

EVERY = 1_000_000
"""Jobs that a list is asked for where all are wanted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What lies in the home of the embedded SageMaker."""

    bytes: int
    """In all."""
    jobs: dict[str, int]
    """Of it, records, logs and results by job, the largest first."""


def usage(home: Path) -> Usage:
    """Measure what lies in ``home``."""
    folders = [*home.glob("jobs/*/*"), *(output.parent for output in home.glob("data/*/*/output"))]
    by_job: dict[str, int] = {}
    for folder in folders:
        by_job[folder.name] = by_job.get(folder.name, 0) + _bytes(folder)
    return Usage(bytes=_bytes(home), jobs=dict(sorted(by_job.items(), key=lambda item: -item[1])))


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it was removed meanwhile
            # A link counts as itself: what it leads to may lie outside of the home.
            total += path.lstat().st_size if path.is_file() else 0
    return total


def chosen(listed: Iterable[Listed], *, older_than: timedelta | None, keep: int, now: datetime) -> list[Listed]:
    """Return the jobs that have ended and are to go.

    Args:
        listed: The jobs that there are.
        older_than: Only those that ended before so long; None is all.
        keep: How many of those that ended last stay.
        now: The time.
    """
    ended = [job for job in listed if job.status.is_terminal]
    ended.sort(key=lambda job: job.ended or job.created, reverse=True)
    limit = None if older_than is None else now - older_than
    return [job for job in ended[keep:] if limit is None or (job.ended or job.created) < limit]


def removable(service: Service, *, older_than: timedelta | None, keep: int) -> list[Job]:
    """Return the jobs of this machine that ``chosen`` chooses."""
    listed = jobs(service, limit=EVERY)
    going = chosen(listed, older_than=older_than, keep=keep, now=datetime.now(UTC))
    return [Job(Chain(job.name, service=service, api=job.api)) for job in going]


def descriptions(service: Service) -> list[Description]:
    """Return how every job is: what some refer to is not to be removed with others."""
    every = []
    for listed in jobs(service, limit=EVERY):
        # Another process may remove jobs too, while they are described.
        with contextlib.suppress(JobNotFound):
            every.append(Chain(listed.name, service=service, api=listed.api).describe())
    return every


def check(job: Job, every: Iterable[Description]) -> None:
    """Refuse what must not be removed.

    Args:
        job: The one that is to go.
        every: All jobs, as ``descriptions`` returns them.

    Raises:
        InvalidRequest: It is active, an active job reads what it left, or it is on AWS.
    """
    description = job.describe()
    if not job.service.target.removes_jobs:
        raise InvalidRequest(
            f"{job.name} is on AWS, which keeps the records of jobs; what it left you can remove yourself: "
            f"aws s3 rm --recursive {job.outputs}"
        )
    if not description.status.is_terminal:
        raise InvalidRequest(f"{job.name} is {description.status}: stop it first (raysm stop {job.name})")
    folder = _own_folder(job)
    for other in every:
        if other.name != job.name and not other.status.is_terminal and folder and _reads(other, folder.as_uri()):
            raise InvalidRequest(f"{job.name} is an input of {other.name}, which is {other.status}: wait for that one")


def remove(job: Job, every: Iterable[Description]) -> None:
    """Remove what is kept of a job of this machine that has ended: its record, logs, result, checkpoints and payload.

    Args:
        job: The one that is to go.
        every: All jobs that are to stay, and maybe this one.

    Raises:
        InvalidRequest: As ``check``.
    """
    check(job, every)
    service, folder = job.service, _own_folder(job)
    needed = {uri for other in every if other.name != job.name for uri in _uris(other)}
    state = job.describe().answer.get("CheckpointConfig", {}).get("S3Uri", "")
    # A job that went on with the state, or is to, is another one of the same checkpoints.
    if _is_ours(service, state) and state not in needed:
        shutil.rmtree(file_path(state), ignore_errors=True)
    _remove_shared(job, needed)
    project, task = job.tags.get(PROJECT_TAG), job.tags.get(TASK_TAG)
    if project and task:
        _remove_payload(job, project, needed)
        file_path(f"{service.places.records(project, task)}/{job.name}.json").unlink(missing_ok=True)
    if folder is not None:
        # It may be gone, by a removal that was interrupted.
        shutil.rmtree(folder, ignore_errors=True)
    cache_of(service).forget([job.arn])
    # Its record last: where this is interrupted, the job is there to be removed again.
    service.delete(job.api, job.name)


def _remove_payload(job: Job, project: str, needed: set[str]) -> None:
    """Remove what travelled to the job, unless another one of its chain travels with the same."""
    prefix = job.service.places.payload(project, job.tags.get(FIRST_TAG, job.name))
    if f"{prefix}/" not in needed:
        Storage(job.service).remove(prefix)


def _remove_shared(job: Job, needed: set[str]) -> None:
    """Remove what the job's payload shared with those of others, unless one that stays has it as well."""
    root, storage = job.service.places.shared(""), Storage(job.service)
    for uri in _uris(job.describe()):
        if uri.startswith(root) and uri not in needed:
            # What says that it is there goes first: a grid that sends its next job meanwhile sends it anew.
            storage.remove_object(shared_mark(uri))
            storage.remove(uri)


def _own_folder(job: Job) -> Path | None:
    """Return the folder of the job's outputs, if it is one that raysm chose; a user's own is no business of ours."""
    if not _is_ours(job.service, job.outputs):
        return None
    folder = file_path(job.outputs).parent
    return folder if folder.name == job.name else None


def _is_ours(service: Service, uri: str) -> bool:
    # With .. in it, a URI that begins below the home may lead out of it.
    return uri.startswith(f"{service.places.data}/") and "/../" not in uri


def _uris(description: Description) -> Iterator[str]:
    """Yield every place that a job reads from."""
    answer = description.answer
    channels: list[Any] = [item["DataSource"].get("S3DataSource") for item in answer.get("InputDataConfig", ())]
    channels += [item.get("S3Input") for item in answer.get("ProcessingInputs", ())]
    yield from (str(channel["S3Uri"]) for channel in channels if channel)
    if "CheckpointConfig" in answer:
        yield str(answer["CheckpointConfig"]["S3Uri"])


def _reads(description: Description, uri: str) -> bool:
    # With the slash at both ends: what lies below .../job-10 is not of .../job-1.
    return any(f"{item.rstrip('/')}/".startswith(f"{uri}/") for item in _uris(description))

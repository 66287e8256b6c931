"""Remove records, logs, results and checkpoints of jobs of this machine. Nothing is removed on AWS.

Results that were copied to a user's folder stay, as does everything that an active job reads.
"""

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from raysm.core import features
from raysm.core.client.job.chain import Chain
from raysm.core.client.job.description import Description, Status
from raysm.core.client.job.handle import Job
from raysm.core.client.job.listing import NO_LIMIT, Listed, jobs
from raysm.core.client.service import Service
from raysm.core.client.storage.inputs import SAVED
from raysm.core.client.storage.places import shared_mark
from raysm.core.client.storage.s3 import Storage, file_path
from raysm.core.protocol.file_uri import SCHEME, path_of, uri_of
from raysm.core.protocol.names import FIRST_TAG, PROJECT_TAG, TASK_TAG
from raysm.errors import InvalidRequest, JobNotFound


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    bytes: int
    jobs: dict[str, int]
    """By job, the largest first."""


def usage(home: Path) -> Usage:
    outputs = (output.parent for output in home.glob("data/*/*/output"))
    folders = [*home.glob("jobs/*/*"), *outputs, *home.glob("data/*/*/state/*")]
    by_job: dict[str, int] = {}
    for folder in folders:
        by_job[folder.name] = by_job.get(folder.name, 0) + _bytes(folder)
    return Usage(bytes=_bytes(home), jobs=dict(sorted(by_job.items(), key=lambda item: -item[1])))


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it was removed meanwhile
            total += path.lstat().st_size if path.is_file() else 0
    return total


def chosen(
    listed: Iterable[Listed], *, older_than: timedelta | None, keep: int, now: datetime
) -> list[Listed]:
    """Return the jobs that ended more than ``older_than`` ago, except the ``keep`` last ones."""
    ended = [job for job in listed if job.status.is_terminal]
    ended.sort(key=lambda job: job.ended or job.created, reverse=True)
    limit = None if older_than is None else now - older_than
    return [job for job in ended[keep:] if limit is None or (job.ended or job.created) < limit]


def removable(service: Service, *, older_than: timedelta | None, keep: int) -> list[Job]:
    listed = jobs(service, limit=NO_LIMIT)
    ended = chosen(listed, older_than=older_than, keep=keep, now=datetime.now(UTC))
    return [Job(Chain(job.name, service=service, api=job.api)) for job in ended]


def descriptions(service: Service) -> list[Description]:
    every = []
    for listed in jobs(service, limit=NO_LIMIT):
        with contextlib.suppress(JobNotFound):  # another process removed it meanwhile
            every.append(Chain(listed.name, service=service, api=listed.api).describe())
    return every


def check(job: Job, every: Iterable[Description]) -> None:
    description = job.describe()
    if not job.service.target.removes_jobs:
        raise InvalidRequest(
            f"{job.name} is on AWS, which keeps jobs; remove its outputs yourself: "
            f"aws s3 rm --recursive {job.outputs}"
        )
    if not description.status.is_terminal:
        first = (
            "wait for its end"
            if description.status is Status.STOPPING
            else f"stop it first (raysm stop {job.name})"
        )
        raise InvalidRequest(f"{job.name} is {description.status}: {first}")
    folder = _own_folder(job)
    if folder is None:
        return
    for other in every:
        if other.name != job.name and not other.status.is_terminal:
            # As paths, because users quote URIs in their own way.
            if any(
                uri.startswith(SCHEME) and path_of(uri).is_relative_to(folder)
                for uri in _uris(other)
            ):
                raise InvalidRequest(
                    f"{job.name} is an input of {other.name}, which is {other.status}: "
                    f"wait for the end of {other.name}"
                )


def remove(job: Job, every: Iterable[Description]) -> None:
    check(job, every)
    service = job.service
    places = job.service.places
    storage = Storage(job.service)
    needed = {uri for other in every if other.name != job.name for uri in _uris(other)}
    state = job.describe().answer.get("CheckpointConfig", {}).get("S3Uri", "")
    # Another job may have the same checkpoints.
    if _is_ours(service, state) and state not in needed:
        shutil.rmtree(file_path(state), ignore_errors=True)
    for uri in _uris(job.describe()):
        if uri.startswith(places.shared("")) and uri not in needed:
            # The mark is removed first: then a grid that sends its next job meanwhile uploads the
            # rest again.
            storage.remove_object(shared_mark(uri))
            storage.remove(uri)
        if uri.startswith(f"{uri_of(service.home / SAVED)}/") and uri not in needed:
            shutil.rmtree(file_path(uri).parent, ignore_errors=True)
    project = job.tags.get(PROJECT_TAG)
    task = job.tags.get(TASK_TAG)
    if project and task:
        # Follow-ups use the first job's payload.
        payload = places.payload(project, job.tags.get(FIRST_TAG, job.name))
        if f"{payload}/" not in needed:
            storage.remove(payload)
        file_path(f"{places.records(project, task)}/{job.name}.json").unlink(missing_ok=True)
    folder = _own_folder(job)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    if (cache_of := features.offered("cache_of_jobs")) is not None:
        cache_of(service).forget([job.arn])
    # The service's record last: if this is interrupted, the job can be removed again.
    service.delete(job.api, job.name)


def _own_folder(job: Job) -> Path | None:
    if not _is_ours(job.service, job.outputs):
        return None
    folder = file_path(job.outputs).parent
    return folder if folder.name == job.name else None


def _is_ours(service: Service, uri: str) -> bool:
    # With .. in it, a URI may lead out of the home.
    return uri.startswith(f"{service.places.data}/") and "/../" not in uri


def _uris(description: Description) -> Iterator[str]:
    answer = description.answer
    channels: list[Any] = [
        item["DataSource"].get("S3DataSource") for item in answer.get("InputDataConfig", ())
    ]
    channels += [item.get("S3Input") for item in answer.get("ProcessingInputs", ())]
    yield from (str(channel["S3Uri"]) for channel in channels if channel)
    if "CheckpointConfig" in answer:
        yield str(answer["CheckpointConfig"]["S3Uri"])

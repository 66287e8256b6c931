"""Records of a task's jobs: one small object for each job, beside their results.

A task is a project and a name; its jobs are its runs. Objects are never changed, so that several people may submit the
same task at once. A record does not say whether its job is done: ask the service.
"""

import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysm import __version__
from raysm.client.storage.inputs import objects_of
from raysm.client.storage.s3 import Storage, in_parallel
from raysm.contract.source import Source
from raysm.contract.store import sha256_of
from raysm.errors import InvalidConfig
from raysm.request import Input, JobRequest, Target, Workload
from raysm.request.codec import from_json, to_json
from raysm.request.options import decisive

__all__ = [
    "InputsState",
    "Record",
    "code_of",
    "digest_of",
    "job_name",
    "keep",
    "kept_of",
    "latest_of_state",
    "of_job",
    "recorded",
    "task_of",
    "with_inputs",
]

MAX_NAME = 63
"""Characters of a job's name."""

RUN = re.compile(r"-\d{8}-\d{6}-[0-9a-f]*(-r\d+)?$")
"""What ``job_name``, and a follow-up job's name, have behind the task's."""

DIGEST_CHARACTERS = 4
CHANCE_CHARACTERS = 4
"""Of a job's name: its end is a piece of the digest of what was asked for, and chance."""

RUN_CHARACTERS = len("-20260102-030405-") + DIGEST_CHARACTERS + CHANCE_CHARACTERS
"""Of a job's name: what ``job_name`` has behind the task's."""

NAMED = re.compile(rf"-\d{{8}}-\d{{6}}-([0-9a-f]{{{DIGEST_CHARACTERS}}})[0-9a-f]{{{CHANCE_CHARACTERS}}}\.json$")
"""The name of a record, by which the digest's piece is known without reading it."""

READ_AT_ONCE = 16
"""Records: as many as transfers at a time."""

SHOWN_EVERY = 100_000
"""Objects of an input: about a hundred calls, and ten seconds, on S3."""

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputsState:
    """What a job is about to read."""

    digest: str
    """Of that, and of all else that its result depends on."""
    sizes: Mapping[str, int]
    """Bytes of each channel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One job of a task."""

    job: str
    """The job's name."""
    api: str
    """The operation that made it, ``CreateTrainingJob``."""
    digest: str
    """Of all that its result depends on."""
    state: str | None
    """Its checkpoint prefix; None where it has none."""
    submitted_s: float
    """When, in seconds since the epoch."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What the workload was called with, by name."""
    code: str = ""
    """Of the user's code alone, whatever it was called with."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of raysm and Python, where the job was sent."""


def keep(record: Record, prefix: str, storage: Storage, kms_key: str | None = None) -> None:
    """Remember a job that was just sent."""
    storage.write(f"{prefix}/{record.job}.json", json.dumps(to_json(record), indent=1).encode(), kms_key)


def recorded(prefix: str, storage: Storage, digest: str | None = None) -> Iterator[Record]:
    """Yield what is remembered of a task's jobs, the latest first; no more is read than is taken, some at a time.

    Args:
        prefix: Of the task's records.
        storage: Reads them.
        digest: Of what was asked for, as ``job_name`` took it: jobs whose names say another are passed over unread. A
            task may have thousands of jobs, of which one is the same.
    """
    items = [item for item in storage.folder(prefix) if digest is None or _may_be_of(item.name, digest)]
    # By what the listing tells: to be sorted by their own times, all would have to be read.
    items.sort(key=lambda item: (item.modified_s, item.name), reverse=True)
    for begin in range(0, len(items), READ_AT_ONCE):
        contents = in_parallel(storage.read, [item.uri for item in items[begin : begin + READ_AT_ONCE]])
        records = [record for record in map(_read, contents) if record is not None]
        # Times of objects are whole seconds, in which several jobs may have been sent.
        yield from sorted(records, key=lambda record: record.submitted_s, reverse=True)


def of_job(job: str, prefix: str, storage: Storage) -> Record | None:
    """Return what is remembered of one job of a task; None where that is nothing that can be read."""
    return _read(storage.read(f"{prefix}/{job}.json"))


def latest_of_state(prefix: str, storage: Storage, uri: str | None = None) -> Record | None:
    """Return the task's latest job that has checkpoints, at ``uri`` or, where that is None, anywhere."""
    for record in recorded(prefix, storage):
        # The latest may have been a Processing job, which has none.
        if record.state is not None and (uri is None or record.state.rstrip("/") == uri.rstrip("/")):
            return record
    return None


def _may_be_of(name: str, digest: str) -> bool:
    """Whether the record ``name`` may be of a job with this digest; of a name that tells nothing it may."""
    piece = NAMED.search(name)
    return piece is None or piece[1] == digest[:DIGEST_CHARACTERS]


def _read(content: bytes | None) -> Record | None:
    """Return the record, or None: one that another version wrote, or that was removed meanwhile, is passed over."""
    try:
        # What was removed reads as nothing, which is no JSON either.
        return from_json(Record, json.loads(content or b""), "record")
    except (ValueError, InvalidConfig):
        return None


def job_name(task: str, digest: str, now_s: float) -> str:
    """Return a name that no other job has: the task, the time (UTC), a piece of the digest, and chance."""
    # The same may be sent twice in one second: then chance alone tells the two names apart.
    piece = digest[:DIGEST_CHARACTERS] + secrets.token_hex(CHANCE_CHARACTERS // 2)
    suffix = time.strftime("-%Y%m%d-%H%M%S-", time.gmtime(now_s)) + piece
    return kept_of(task) + suffix


def kept_of(task: str) -> str:
    """Return as much of a task's name as the names of its jobs have: all of it, unless it is long."""
    # The task's part is cut: what comes behind it makes the name the only one.
    return task[: MAX_NAME - RUN_CHARACTERS].rstrip("-")


def task_of(job: str) -> str:
    """Return the task of a job by its name, as far as ``job_name`` kept it; of a job of others, its whole name."""
    return RUN.sub("", job)


def digest_of(
    request: JobRequest,
    target: Target,
    *,
    source: Source | None = None,
    pickled: bytes | None = None,
    wheels: Iterable[Path] = (),
) -> str:
    """Return the SHA-256 of what is asked for: source, parameters, and raysm's version; of inputs the URIs alone.

    Args:
        request: The job; its name does not count, nor do its tags and what only concerns how long it may take.
        target: Where it goes; of it only what runs the job counts, its image above all.
        source: What travels of the user's source.
        pickled: The function, where it is one.
        wheels: Packages that travel.
    """
    script = request.workload.entry_script
    # As it travels: in the instance it lies in the payload's source, wherever its folder was, and on whose machine.
    if script is not None and source is not None and source.script is not None:
        request = replace(request, workload=script.moved_to(source.script))
    parts: dict[str, Any] = {
        "raysm": __version__,
        "request": decisive(request),
        "target": decisive(target),
        "source": {name: sha256_of(path) for name, path in source.files.items()} if source is not None else {},
        "function": hashlib.sha256(pickled).hexdigest() if pickled else None,
        "wheels": {wheel.name: sha256_of(wheel) for wheel in wheels},
    }
    return _sha256(parts)


def code_of(workload: Workload, source: Source | None) -> str:
    """Return the SHA-256 of the user's code, the files that travel and a function's own text, whatever it is given.

    Empty where nothing of the user's travels.
    """
    files = {} if source is None else {name: sha256_of(path) for name, path in source.files.items()}
    return _sha256([files, workload.code_digest]) if files or workload.code_digest else ""


def with_inputs(
    digest: str, inputs: Mapping[str, Input], storage: Storage, *, most: int | None = None
) -> InputsState | None:
    """Return ``digest`` with the state of the inputs in it, and their sizes; memory holds one page of their lists.

    Files of this machine count by their names, sizes and times of modification, objects by their ETags.

    Args:
        digest: Of all else.
        inputs: By their channels.
        storage: Lists them.
        most: Objects after which it is given up; None is never.

    Returns:
        None where there are more than ``most`` objects.
    """
    whole, count, sizes = hashlib.sha256(digest.encode()), 0, dict.fromkeys(inputs, 0)
    for channel in sorted(inputs):
        whole.update(_line([channel]))
        for number, stored in enumerate(objects_of(inputs[channel], storage), 1):
            if count == most:
                return None
            count += 1
            whole.update(_line([stored.name, stored.size, stored.version]))
            sizes[channel] += stored.size
            if number % SHOWN_EVERY == 0:
                _log.warning("if_done looks at the objects of the input %r: %s so far", channel, f"{number:,}")
    return InputsState(digest=whole.hexdigest(), sizes=sizes)


def _sha256(value: Any) -> str:
    return hashlib.sha256(_line(value)).hexdigest()


def _line(value: Any) -> bytes:
    # The order of the environment or the tags changes nothing. JSON has no line breaks of its
    # own, so that of two different lists of lines none are the same bytes.
    return json.dumps(value, sort_keys=True).encode() + b"\n"

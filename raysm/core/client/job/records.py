"""Records of a task's jobs: one small object for each job, beside their results.

A task is a project and a name; its jobs are its runs. Objects are never changed, so several people
may submit the same task at once. A record does not say whether its job is done: ask the service.
"""

import functools
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
from raysm.core.client.storage.inputs import objects_of
from raysm.core.client.storage.s3 import Storage, in_parallel
from raysm.core.protocol.source import Source
from raysm.core.protocol.store import sha256_of
from raysm.core.request import Input, JobRequest, Target, Workload
from raysm.core.request.codec import from_json, to_json
from raysm.core.request.options import decisive
from raysm.errors import InvalidConfig

MAX_NAME = 63
RUN = re.compile(r"-\d{8}-\d{6}-[0-9a-f]*(-r\d+)?$")
"""The end of a job's name after its task's: what ``job_name`` adds, and a follow-up's number."""

DIGEST_CHARACTERS = 4
RANDOM_CHARACTERS = 4
RUN_CHARACTERS = len("-20260102-030405-") + DIGEST_CHARACTERS + RANDOM_CHARACTERS

READ_AT_ONCE = 16
MAX_BYTES = 4 << 20
"""Most bytes of a record; larger objects are not records."""

LOG_EVERY = 100_000

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputsState:
    digest: str
    listed: str
    """Digest of the listed objects and files alone."""
    sizes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    job: str
    api: str
    digest: str
    """Digest of everything that its result depends on; empty if its inputs were not listed."""
    state: str | None
    submitted_s: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    """Digest of its inputs and environment; empty if its inputs were not listed."""


def keep(record: Record, prefix: str, storage: Storage, kms_key: str | None = None) -> None:
    storage.write(
        f"{prefix}/{record.job}.json", json.dumps(to_json(record), indent=1).encode(), kms_key
    )


def recorded(prefix: str, storage: Storage) -> Iterator[Record]:
    # Sorted by the listing's times: sorting by submitted_s would read all records.
    items = sorted(
        storage.folder(prefix), key=lambda item: (item.modified_s, item.name), reverse=True
    )
    for begin in range(0, len(items), READ_AT_ONCE):
        read = functools.partial(_read, storage)
        found = in_parallel(read, [item.uri for item in items[begin : begin + READ_AT_ONCE]])
        records = [record for record in found if record is not None]
        # S3's times are whole seconds, in which several jobs may have been sent.
        yield from sorted(records, key=lambda record: record.submitted_s, reverse=True)


def of_job(job: str, prefix: str, storage: Storage) -> Record | None:
    return _read(storage, f"{prefix}/{job}.json")


def latest_of_state(prefix: str, storage: Storage, uri: str | None = None) -> Record | None:
    for record in recorded(prefix, storage):
        if record.state is not None and (
            uri is None or record.state.rstrip("/") == uri.rstrip("/")
        ):
            return record
    return None


def _read(storage: Storage, uri: str) -> Record | None:
    try:
        return from_json(Record, json.loads(storage.read(uri, MAX_BYTES) or b""), "record")
    # Another version wrote it, or someone else did, or it was deleted meanwhile.
    except (ValueError, RecursionError, InvalidConfig):
        return None


def job_name(task: str, digest: str, now_s: float) -> str:
    piece = digest[:DIGEST_CHARACTERS] + secrets.token_hex(RANDOM_CHARACTERS // 2)
    return kept_of(task) + time.strftime("-%Y%m%d-%H%M%S-", time.gmtime(now_s)) + piece


def is_run_of(job: str, task: str, digest: str) -> bool:
    """Return whether ``job_name`` can have made a job's name of this task and digest."""
    begin = f"{kept_of(task)}-"
    rest = job.removeprefix(begin)
    pattern = rf"\d{{8}}-\d{{6}}-{digest[:DIGEST_CHARACTERS]}[0-9a-f]{{{RANDOM_CHARACTERS}}}"
    return job.startswith(begin) and re.fullmatch(pattern, rest) is not None


def kept_of(task: str) -> str:
    """Return the beginning of a task's name that jobs' names keep: all unless it is too long."""
    return task[: MAX_NAME - RUN_CHARACTERS].rstrip("-")


def task_of(job: str) -> str:
    """Return the task's name from a job's name; it is cut if it is long.

    If raysm did not make the name, return all of it.
    """
    return RUN.sub("", job)


def digest_of(
    request: JobRequest,
    target: Target,
    *,
    source: Source | None = None,
    pickled: bytes | None = None,
    wheels: Iterable[Path] = (),
) -> str:
    """Return the SHA-256 of a request: source, parameters, raysm's version, and the URIs of inputs.

    The name, tags and time limits do not count, and of the target only what runs the job, above all
    its image.
    """
    script = request.workload.entry_script
    # By its path in the payload, which does not depend on the folder or the machine.
    if script is not None and source is not None and source.script is not None:
        request = replace(request, workload=script.moved_to(source.script))
    parts: dict[str, Any] = {
        "raysm": __version__,
        "request": decisive(request),
        "target": decisive(target),
        "source": {name: sha256_of(path) for name, path in source.files.items()}
        if source is not None
        else {},
        "function": hashlib.sha256(pickled).hexdigest() if pickled else None,
        "wheels": {wheel.name: sha256_of(wheel) for wheel in wheels},
    }
    return hashlib.sha256(_line(parts)).hexdigest()


def code_of(workload: Workload, source: Source | None) -> str:
    files = {} if source is None else {name: sha256_of(path) for name, path in source.files.items()}
    if not files and not workload.code_digest:
        return ""
    return hashlib.sha256(_line([files, workload.code_digest])).hexdigest()


def with_inputs(
    digest: str, inputs: Mapping[str, Input], storage: Storage, *, max_objects: int | None = None
) -> InputsState | None:
    """Return the sizes of the inputs, and ``digest`` extended by their state.

    ``inputs`` are not on file systems, which cannot be listed from here.

    Memory holds one page of a listing.

    Files of this machine count by their names, sizes and times of modification, objects by their
    ETags. None if there are more than ``max_objects`` objects.
    """
    listed = hashlib.sha256()
    count = 0
    sizes = dict.fromkeys(inputs, 0)
    whole = hashlib.sha256(digest.encode())

    def take(line: bytes) -> None:
        whole.update(line)
        listed.update(line)

    for channel in sorted(inputs):
        take(_line([channel]))
        for number, stored in enumerate(objects_of(inputs[channel], storage), 1):
            if count == max_objects:
                return None
            count += 1
            take(_line([stored.name, stored.size, stored.version]))
            sizes[channel] += stored.size
            if number % LOG_EVERY == 0:
                _log.warning(
                    "if_done looks at the objects of the input %r: %s so far",
                    channel,
                    f"{number:,}",
                )
    return InputsState(digest=whole.hexdigest(), listed=listed.hexdigest(), sizes=sizes)


def _line(value: Any) -> bytes:
    # This JSON has no line breaks, so different sequences of values have different bytes.
    return json.dumps(value, sort_keys=True).encode() + b"\n"

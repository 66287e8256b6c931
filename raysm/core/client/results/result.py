"""Results of jobs: folders, values and exceptions.

Unpickling runs code, and people who may write to a job's outputs could replace a pickle there. They
cannot write into the job's log, where the driver has put the digest, so each pickle is compared
with it first. A local job's outputs lie in raysm's home, to which only its owner may write: they
are read as they are.
"""

import contextlib
import hashlib
import html
import json
import logging
import os
import pickle
import pkgutil
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raysm.core.client.job.chain import Chain
from raysm.core.client.job.description import Description, budget_used
from raysm.core.client.job.records import task_of
from raysm.core.client.logs.stream import STREAM
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage, file_path, in_parallel, leads_out
from raysm.core.client.units import check_python
from raysm.core.protocol.events import MARK as EVENT_MARK
from raysm.core.protocol.events import Digest, parse
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.modules import needs_module
from raysm.core.protocol.result import (
    EXCEPTION,
    FAILURE,
    MANIFEST,
    MARK,
    VALUE,
    Failure,
    Manifest,
    how_to_read,
)
from raysm.core.protocol.store import put
from raysm.core.protocol.terminal_text import visible
from raysm.core.protocol.trust import is_trusted_owner
from raysm.core.request.codec import from_json
from raysm.core.request.workload import built_in_kind
from raysm.errors import (
    IN_THE_JOB,
    InvalidConfig,
    InvalidRequest,
    JobFailed,
    MissingDependency,
    ServiceError,
    used_by,
)

_log = logging.getLogger(__name__)

ARCHIVE = "model.tar.gz"
"""The result of a Training job without ``CompressionType`` NONE."""


MAX_FAILURE_BYTES = 16 << 20
"""Most bytes of a failure with its traceback that are read."""

MAX_PAGES = 20
"""Pages of a stream that are searched, from its end: the digest is among the job's last lines."""

OF_TASK = re.compile(r"\([^()]*\bpid=")
"""What Ray puts before each line of a task or an actor."""

LOOK_S = 1.0
"""Pause between two looks for lines that may still arrive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingResult:
    job: str
    names: frozenset[str]
    """Its files, relative to the folder; after an interruption also those of the result before
    it."""


def manifest_of(folder: Path) -> Manifest | None:
    """Return the manifest that raysm wrote into a folder, or None.

    None means that there is no manifest, or one that must not be followed.

    Whoever may write to the bucket can write a manifest.
    """
    try:
        manifest = Manifest.read(folder)
    except (InvalidConfig, InvalidRequest):
        return None
    outside = next((file.name for file in manifest.files if leads_out(file.name)), None)
    if outside is not None:
        _log.warning(
            "%s is not followed: it names %r, which is not below its folder",
            folder / MANIFEST,
            outside,
        )
        return None
    return replace(
        manifest,
        files=tuple(replace(file, how_to_read=how_to_read(file.name)) for file in manifest.files),
    )


def earlier_result(folder: Path) -> ExistingResult | None:
    # The mark first, because only it lists the files of an interrupted result.
    if (folder / MARK).is_file():
        job, *names = (folder / MARK).read_text(encoding="utf-8").splitlines() or [""]
        return ExistingResult(job=job, names=frozenset(map(_unquoted, names)))
    manifest = manifest_of(folder)
    if manifest is None:
        return None
    return ExistingResult(job=manifest.job, names=frozenset(file.name for file in manifest.files))


def check_folder(folder: Path, job: str | None = None) -> ExistingResult | None:
    """Refuse a folder unless it is empty or has a result of ``job``'s task; return that result."""
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"the output {folder} is a file; name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    earlier = earlier_result(folder)
    if earlier is None:
        raise InvalidRequest(
            f"the output {folder} holds files that are not a result of raysm; name another folder"
        )
    if job is not None and task_of(earlier.job) != task_of(job):
        raise InvalidRequest(
            f"the output {folder} is the result of {earlier.job}, not of {task_of(job)!r}; "
            "name another, or remove it"
        )
    return earlier


@dataclass(frozen=True, slots=True)
class Result:
    """A result on this machine: a folder and its manifest. Usable wherever a path is.

    Attributes:
        path: The folder.
        manifest: The workload, its inputs, the files, and the time of each phase.
    """

    path: Path
    manifest: Manifest

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def file(self) -> Path:
        """The first file of the result; most workloads have only one.

        Raises:
            InvalidRequest: The result has no files.
        """
        if not self.manifest.files:
            raise InvalidRequest(f"the result of {self.manifest.job} in {self.path} has no files")
        return self.path / self.manifest.files[0].name

    @property
    def view(self) -> str:
        """A picture of it for a terminal; empty if the list of its files is enough."""
        return ""

    @property
    def is_partial(self) -> bool:
        """Whether a part of the work failed, as a sweep's trial may; commands then end with 1."""
        return False

    def table(self, name: str | None = None) -> Any:
        """Read a file of the result.

        Parquet is a ``pyarrow.Table``, ``.npy`` a memory-mapped array.

        Args:
            name: Name of the file; None is the first.

        Raises:
            InvalidRequest: There is no such file, or it is not a table.
            MissingDependency: The package that reads it is not installed.
        """
        path = self.file if name is None else self.path / name
        names = ", ".join(file.name for file in self.manifest.files)
        if name is not None and name not in [file.name for file in self.manifest.files]:
            raise InvalidRequest(f"the result has no file {name!r}; it has {names}")
        with used_by(path.name):
            if path.suffix == ".parquet":
                import pyarrow.parquet

                return pyarrow.parquet.read_table(path)
            if path.suffix == ".npy":
                import numpy

                # Mapped, because a full matrix may be larger than the memory.
                return numpy.load(path, mmap_mode="r")
        raise InvalidRequest(
            f"{path.name} is neither Parquet nor .npy: read {path} yourself; the result has {names}"
        )

    def tables(self) -> Iterator[Any]:
        """Yield the parts of ``table()`` one after the other; nothing if the result has no files.

        Raises:
            InvalidRequest: A part is not a table.
            MissingDependency: The package that reads it is not installed.
        """
        if self.manifest.files:
            yield self.table()

    def _one_table(self, parts: Sequence[Path]) -> Any:
        with used_by("table"):
            import pyarrow
            import pyarrow.parquet
        return pyarrow.concat_tables([pyarrow.parquet.read_table(part) for part in parts])

    def __repr__(self) -> str:
        lines = [f"<raysm result of {self.manifest.job} in {self.path}", *map(str, self._lines())]
        return visible("\n".join(lines) + ">")

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<li><code>{html.escape(visible(line))}</code></li>" for line in self._lines()
        )
        return (
            f"<div><b>result of {html.escape(self.manifest.job)}</b>"
            f" in <code>{html.escape(str(self.path))}</code>"
            f"<ul>{rows}</ul></div>"
        )

    def _lines(self) -> list[str]:
        lines = []
        for file in self.manifest.files:
            how = how_to_read(str(self.path / file.name))
            lines.append(f"  {file.name}: {file.size}{how and f'; {how}'}")
        return lines


def read_as(folder: Path, manifest: Manifest) -> Result:
    kind = built_in_kind(str(manifest.workload.get("kind")))
    reader: Any = Result if kind is None or not kind.reader else pkgutil.resolve_name(kind.reader)
    result: Result = reader(folder, manifest)
    return result


def fetch_result(
    outputs: str, storage: Storage, *, job: str, to: Path | None, cache: Path
) -> Result | Path | None:
    folder = _fetch(outputs, storage, job=job, to=to, cache=cache)
    manifest = None if folder is None else manifest_of(folder)
    return folder if folder is None or manifest is None else read_as(folder, manifest)


def _fetch(
    outputs: str, storage: Storage, *, job: str, to: Path | None, cache: Path
) -> Path | None:
    earlier = None if to is None else check_folder(to, job)
    uri = f"{outputs}/model"
    # The result of a job that another program sent may be one archive.
    stored = storage.folder(uri) or [
        item for item in storage.folder(outputs) if item.name == ARCHIVE
    ]
    if not stored:
        return None
    if to is None and not uri.startswith("s3://"):
        return file_path(stored[0].uri).parent if stored[0].name == ARCHIVE else file_path(uri)
    folder = cache if to is None else to
    # Files of another job may have the same sizes: sizes are enough only in the job's own folder.
    missing = [
        item for item in stored if to is not None or not _has_size(folder / item.name, item.size)
    ]
    if not missing:
        return folder
    names = {item.name for item in stored}
    old_names = earlier.names if earlier else frozenset()
    if to is None:
        private_folder(folder.parent.parent, folder.parent.name, folder.name)
    folder.mkdir(parents=True, exist_ok=True)
    # Marked before the manifest is removed, so that one of them always lists the files in the
    # folder.
    _mark(folder, job, names | old_names)
    # A script's own manifest.json is a file of its result like others.
    if manifest_of(folder) is not None:
        (folder / MANIFEST).unlink()
    storage.bring_all([item for item in missing if item.name != MANIFEST], folder)
    for name in sorted(old_names - names):
        # Someone else may have written that mark: its paths must not lead out of the folder, by
        # links either. Nor need they be files, if that manifest was changed.
        path = folder / name
        is_below = not leads_out(name) and path.parent.resolve().is_relative_to(folder.resolve())
        if is_below and not path.is_dir():
            path.unlink(missing_ok=True)
    _mark(folder, job, names)
    # The manifest last: it says that the result is complete, and replaces the mark.
    for item in stored:
        if item.name == MANIFEST:
            storage.bring(item, folder)
    if manifest_of(folder) is not None:
        (folder / MARK).unlink(missing_ok=True)
    return folder


def _mark(folder: Path, job: str, names: Iterable[str]) -> None:
    # As JSON, because a name may have line breaks, and bytes that are not UTF-8.
    put(folder / MARK, "\n".join([job, *map(json.dumps, sorted(names))]) + "\n")


def _unquoted(line: str) -> str:
    # Earlier releases wrote the name as it is.
    with contextlib.suppress(ValueError):
        return str(json.loads(line)) if line.startswith('"') else line
    return line


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def load_value(outputs: str, chain: Chain, *, python: str, unverified: bool) -> Any:
    job = chain.name
    check_python(python, f"the value of {job}")
    uri = f"{outputs}/model/{VALUE}"
    content = read_pickle(uri, VALUE, chain, unverified=unverified)
    if content is None:
        raise ServiceError(
            f"the job {job} is Completed, but its value is not at {uri}: was it removed?"
        )
    try:
        return pickle.loads(content)
    except ModuleNotFoundError as error:
        raise MissingDependency(f"the value of {job} {needs_module(error.name)}") from error
    except Exception as error:  # unpickling runs the value's own code
        raise ServiceError(
            f"the value of {job} cannot be unpickled: {type(error).__name__}: {error}"
        ) from error


def ended_by_service(job: str, reason: str) -> JobFailed:
    text = (
        f"the job {job} was ended by the service: {reason}; "
        "give it more time (limits), or let follow-up jobs continue it (limits.max_restarts)"
    )
    return JobFailed(
        visible(text),
        job=job,
        reason=reason,
    )


def ended_by_budget(job: Description) -> BaseException:
    sentence, _, remedy = budget_used(job).partition("\n")
    text = visible(f"the job {job.name} {sentence}")
    error = JobFailed(text, job=job.name, reason=sentence)
    return with_remedy(error, remedy) if remedy else error


def load_exception(
    outputs: str, chain: Chain, *, python: str | None, reason: str, unverified: bool
) -> BaseException:
    """Return the exception of a job that failed.

    For a function this is the function's own exception, whose ``__cause__`` is a JobFailed with the
    remote traceback, as in ``concurrent.futures``. For all other workloads (``python`` is None),
    and if that exception cannot be read, it is the JobFailed.
    """
    job = chain.name
    failure = _failure(outputs, Storage(chain.service))
    remote = failure.remote_traceback if failure is not None else ""
    headline = reason
    if failure is not None:
        # Before it, the reason has what the user's code wrote into the failure file.
        own, cause, _ = reason.partition(failure.headline)
        headline = f"{own}{cause}" if cause else failure.headline
    text = f"the job {job} failed: {headline}" + (f"{IN_THE_JOB}{remote}" if remote else "")
    # By the service: the job's own code leaves a failure.
    if failure is None and re.match(
        r"ClientError: .*(not authorized|access ?denied|\bkms\b)", reason, re.I | re.S
    ):
        text += (
            "\nthe role lacks a permission, "
            "which raysm doctor --on aws --role ROLE names, with the job's --input"
        )
    failed = JobFailed(visible(text), job=job, reason=reason or headline, remote_traceback=remote)
    if python is None:
        return failed
    try:
        check_python(python, f"the exception of {job}")
        pickled = read_pickle(
            f"{outputs}/data/{EXCEPTION}", EXCEPTION, chain, unverified=unverified
        )
        error = pickle.loads(pickled or b"")
    except Unverified as refusal:
        return with_remedy(failed, f"its exception is not here: {refusal}")
    except ModuleNotFoundError as missing:
        return with_remedy(failed, f"its exception {needs_module(missing.name)}")
    except Exception:  # it does not exist, another Python pickled it, or its own code fails here
        return failed
    # A KeyboardInterrupt or SystemExit there must not end this process.
    if not isinstance(error, Exception):
        return failed
    error.__cause__ = failed
    return error


def _failure(outputs: str, storage: Storage) -> Failure | None:
    try:
        content = storage.read(f"{outputs}/data/{FAILURE}", MAX_FAILURE_BYTES)
        return from_json(Failure, json.loads(content), "failure") if content else None
    # The service's reason is used instead.
    except (ServiceError, InvalidConfig, ValueError, RecursionError):
        return None


def with_remedy(error: BaseException, remedy: str) -> BaseException:
    if not isinstance(error, JobFailed):
        # A user's own exception cannot be created again with another text.
        error.add_note(remedy)
        return error
    text = f"{error}\n{remedy}"
    failed = JobFailed(
        text, job=error.job, reason=error.reason, remote_traceback=error.remote_traceback
    )
    # Apart as well, because a command that has shown the traceback prints only the headline and the
    # remedy.
    failed.remedy = remedy
    return failed


class Unverified(ServiceError):
    """A pickle differs from its digest in the job's log, or has none; none of it was read."""


def read_pickle(uri: str, name: str, chain: Chain, *, unverified: bool) -> bytes | None:
    """Return the pickle at ``uri``, whose digest the log has under ``name``.

    Returns:
        None if there is no such object.

    Raises:
        Unverified: Its digest differs; or the log has none, unless ``unverified`` is True.
    """
    service = chain.service
    if _is_in_home(uri, service):
        return _read_own(file_path(uri))
    content = Storage(service).read(uri)
    if content is None:
        return None
    actual = hashlib.sha256(content).hexdigest()
    expected = _digest_in_log(chain, name, actual)
    if expected is None and not unverified:
        raise Unverified(
            f"{uri} was not read: it is a pickle, which can run code here, "
            f"and the log of {chain.name} has no digest of it: the lines have expired, "
            "the job's role may not write a log, or an earlier raysm ran the job",
            remedy="if only people whom you trust may write there, read it all the same: "
            f"raysm result {chain.name} --unverified (in Python: result(unverified=True))",
        )
    if expected not in (None, actual):
        raise Unverified(
            f"{uri} was not read: it is not what {chain.name} has written, whose digest is in "
            "the job's log; find out who may write to the bucket, and run the job again"
        )
    return content


def _is_in_home(uri: str, service: Service) -> bool:
    return not uri.startswith("s3://") and file_path(uri).resolve().is_relative_to(
        service.home.resolve()
    )


def _read_own(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            # A user who may write a folder above the home can put another folder in its place.
            if not is_trusted_owner(os.fstat(file.fileno())):
                raise Unverified(
                    f"{path} was not read: it belongs to another user, "
                    "and as a pickle it can run code here",
                    remedy=(
                        "set RAYSM_HOME to a folder below which no other user may "
                        "write, and run the job again"
                    ),
                )
            return file.read()
    except FileNotFoundError:
        return None


def _digest_in_log(chain: Chain, name: str, actual: str) -> str | None:
    """Return the last digest of a file in the log of the last job.

    Wait for ``actual`` while lines may arrive.
    """
    deadline_s = time.monotonic() + chain.late_s()
    while True:
        found = _last_digest(chain, name)
        if found == actual or time.monotonic() >= deadline_s:
            return found
        time.sleep(LOOK_S)


def _last_digest(chain: Chain, name: str) -> str | None:
    service = chain.service
    group = chain.api.log_group
    try:
        pages = service.pages(
            "logs",
            "describe_log_streams",
            token="nextToken",
            logGroupName=group,
            logStreamNamePrefix=f"{chain.name}/",
        )
        streams = [
            stream["logStreamName"] for page in pages for stream in page.get("logStreams", ())
        ]
        # Only the head writes digests, but the service does not say which instance that is.
        of_instances = [
            one for one in streams if STREAM.fullmatch(one.removeprefix(f"{chain.name}/"))
        ]
        found = in_parallel(
            lambda stream: _digest_in_stream(service, group, stream, name), of_instances
        )
    except ServiceError as error:
        if error.code == "ResourceNotFoundException":  # the log has expired, or there never was one
            return None
        raise
    # By the log's times: those in an event may be someone else's.
    _, latest = max(filter(None, found), default=(0, None))
    return latest


def _digest_in_stream(
    service: Service, group: str, stream: str, name: str
) -> tuple[int, str] | None:
    """Return the last digest of a file in a stream, after its time in milliseconds."""
    for event in _backwards(service, group, stream):
        message = event["message"]
        # A task may print data that others have written, and Ray may pass its lines on after the
        # driver's digest.
        is_of_task = OF_TASK.search(message.partition(EVENT_MARK)[0]) is not None
        match parse(message):
            case Digest() as digest if digest.file == name and not is_of_task:
                return event["timestamp"], digest.sha256
    return None


def _backwards(service: Service, group: str, stream: str) -> Iterator[Mapping[str, Any]]:
    query = {"logGroupName": group, "logStreamName": stream}
    for _ in range(MAX_PAGES):
        page = service.call("logs", "get_log_events", startFromHead=False, **query)
        yield from reversed(page.get("events", ()))
        following = page.get("nextBackwardToken")
        if following is None or following == query.get("nextToken"):
            return
        query["nextToken"] = following

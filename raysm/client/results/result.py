"""What a job leaves: result folders, values and exceptions."""

import html
import json
import pickle
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from raysm.client.job.records import task_of
from raysm.client.storage.s3 import Storage, Stored, file_path, in_parallel
from raysm.client.units import check_python
from raysm.contract.result import EXCEPTION, FAILURE, MANIFEST, MARK, VALUE, Failure, Manifest
from raysm.contract.store import put
from raysm.errors import IN_THE_JOB, InvalidConfig, InvalidRequest, JobFailed, MissingDependency, ServiceError
from raysm.request.codec import from_json
from raysm.request.workload import built_in_kind

__all__ = [
    "Earlier",
    "Result",
    "begin_result",
    "brought",
    "check_folder",
    "earlier_result",
    "ended_by_service",
    "finish_result",
    "manifest_of",
    "raised",
    "read_as",
    "unmark",
    "value",
    "with_remedy",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """A result that is there."""

    job: str
    """Name of its job."""
    names: frozenset[str]
    """Its files, relative to the folder; of a result that was interrupted, those of the one before it too."""


def manifest_of(folder: Path) -> Manifest | None:
    """Return the manifest in ``folder``; None where there is none, or one that is no result's of raysm."""
    try:
        return Manifest.read(folder)
    except (InvalidConfig, InvalidRequest):
        return None


def earlier_result(folder: Path) -> Earlier | None:
    """Return what result is in ``folder``; None where there is none."""
    # The mark first: what an interrupted one has brought stands nowhere else.
    if (folder / MARK).is_file():
        job, *names = (folder / MARK).read_text(encoding="utf-8").splitlines() or [""]
        return Earlier(job=job, names=frozenset(names))
    manifest = manifest_of(folder)
    if manifest is None:
        return None
    return Earlier(job=manifest.job, names=frozenset(file.name for file in manifest.files))


def check_folder(folder: Path, job: str | None = None) -> Earlier | None:
    """Refuse a folder that must not be written to: only a result of the same task may be replaced.

    Args:
        folder: Which; it need not be there.
        job: Whose result is to come; None if unknown.

    Returns:
        The result that would be replaced, None where there is none.

    Raises:
        InvalidRequest: ``folder`` is a file, or holds the result of another task, or something of the user's.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidRequest(f"the output {folder} is a file; name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    earlier = earlier_result(folder)
    if earlier is None:
        raise InvalidRequest(f"the output {folder} holds files that are not a result of raysm; name another folder")
    if job is not None and task_of(earlier.job) != task_of(job):
        raise InvalidRequest(
            f"the output {folder} holds the result of {earlier.job}, another task than {task_of(job)!r}; name another "
            "folder, or remove that one"
        )
    return earlier


def begin_result(folder: Path, job: str, names: Iterable[str], earlier: Earlier | None) -> None:
    """Mark ``folder`` as one into which the files ``names`` are being brought: what is there is no whole result."""
    folder.mkdir(parents=True, exist_ok=True)
    # Before the manifest goes: whenever this is interrupted, something says what is in the folder.
    _mark(folder, job, {*names, *(earlier.names if earlier else ())})
    # A manifest.json of the script's own is a file of its result like others.
    if manifest_of(folder) is not None:
        (folder / MANIFEST).unlink()


def finish_result(folder: Path, job: str, names: Iterable[str], earlier: Earlier | None) -> None:
    """Remove what only the earlier result had; all ``names`` but a manifest are there."""
    present = set(names)
    for name in sorted((earlier.names if earlier else frozenset()) - present):
        # The author of that manifest must not have files elsewhere removed.
        if ".." not in PurePosixPath(name).parts and not PurePosixPath(name).is_absolute():
            (folder / name).unlink(missing_ok=True)
    _mark(folder, job, present)


def unmark(folder: Path) -> None:
    """Take the mark away where a manifest says what it said."""
    if manifest_of(folder) is not None:
        (folder / MARK).unlink(missing_ok=True)


def _mark(folder: Path, job: str, names: Iterable[str]) -> None:
    put(folder / MARK, "\n".join([job, *sorted(names)]) + "\n")


ARCHIVE = "model.tar.gz"
"""What a Training job leaves that does not ask for ``CompressionType`` NONE."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result on this machine: a folder, and the manifest that says what is in it. Usable wherever a path is.

    Attributes:
        path: The folder.
        manifest: What was computed, from what, how, and how long it took.
    """

    path: Path
    manifest: Manifest

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def file(self) -> Path:
        """The first file of the result: of most workloads the only one."""
        return self.path / self.manifest.files[0].name

    @property
    def view(self) -> str:
        """How it looks, in a terminal; empty where its files say enough."""
        return ""

    def table(self, name: str | None = None) -> Any:
        """Read a file of the result: Parquet as a ``pyarrow.Table``, ``.npy`` as a memory-mapped array.

        Args:
            name: Of the file; None is the first.

        Raises:
            InvalidRequest: There is no such file, or it is no table.
            MissingDependency: The package that reads it is not installed.
        """
        path = self.file if name is None else self.path / name
        names = ", ".join(file.name for file in self.manifest.files)
        if name is not None and name not in [file.name for file in self.manifest.files]:
            raise InvalidRequest(f"the result has no file {name!r}; it has {names}")
        try:
            if path.suffix == ".parquet":
                import pyarrow.parquet

                return pyarrow.parquet.read_table(path)
            if path.suffix == ".npy":
                import numpy

                # A full matrix may be larger than the memory.
                return numpy.load(path, mmap_mode="r")
        except ImportError as error:
            raise MissingDependency(f"{path.name} needs {error.name}: python3 -m pip install {error.name}") from error
        raise InvalidRequest(f"{path.name} is neither Parquet nor .npy: read {path} yourself; the result has {names}")

    def tables(self) -> Iterator[Any]:
        """Yield what together is ``table()``, a part after the other; nothing where the result has no files.

        Raises:
            InvalidRequest: A part is no table.
            MissingDependency: The package that reads it is not installed.
        """
        if self.manifest.files:
            yield self.table()

    def _one_table(self, parts: Sequence[Path]) -> Any:
        """Read Parquet files as one ``pyarrow.Table``, in their order.

        Raises:
            MissingDependency: pyarrow is not installed.
        """
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingDependency(f"table needs {error.name}: python3 -m pip install {error.name}") from error
        return pyarrow.concat_tables([pyarrow.parquet.read_table(part) for part in parts])

    def __repr__(self) -> str:
        return "\n".join([f"<raysm result of {self.manifest.job} in {self.path}", *map(str, self._lines())]) + ">"

    def _repr_html_(self) -> str:
        rows = "".join(f"<li><code>{html.escape(line)}</code></li>" for line in self._lines())
        return (
            f"<div><b>result of {html.escape(self.manifest.job)}</b> in <code>{html.escape(str(self.path))}</code>"
            f"<ul>{rows}</ul></div>"
        )

    def _lines(self) -> list[str]:
        return [
            f"  {file.name}: {file.size}"
            + (f"; {file.how_to_read.replace(file.name, str(self.path / file.name))}" if file.how_to_read else "")
            for file in self.manifest.files
        ]


def read_as(folder: Path, manifest: Manifest) -> Result:
    """Return a result as what its kind of workload says that it is."""
    kind = built_in_kind(str(manifest.workload.get("kind")))
    if kind is None or not kind.reader:
        return Result(folder, manifest)
    result: Result = pkgutil.resolve_name(kind.reader)(folder, manifest)
    return result


def brought(outputs: str, storage: Storage, *, job: str, to: Path | None, cache: Path) -> Result | Path | None:
    """Bring what a job left to this machine, and return it.

    Args:
        outputs: Prefix of the job's outputs.
        storage: Reads it.
        job: The job's name.
        to: Where to; None is where it lies, for a job of this machine, and ``cache`` for one of AWS.
        cache: A folder of this job alone.

    Returns:
        None where the job left nothing, and the folder where no manifest of raysm's says what it is.

    Raises:
        InvalidRequest: ``to`` is a file, or holds what is no result of the same task.
    """
    folder = _fetch(outputs, storage, job=job, to=to, cache=cache)
    manifest = None if folder is None else manifest_of(folder)
    return folder if folder is None or manifest is None else read_as(folder, manifest)


def _fetch(outputs: str, storage: Storage, *, job: str, to: Path | None, cache: Path) -> Path | None:
    """Bring the folder ``model`` of a job to this machine; return it, None where the job left nothing."""
    earlier = None if to is None else check_folder(to, job)
    uri = f"{outputs}/model"
    # A job that others sent may have left its result as one archive.
    stored = storage.folder(uri) or [item for item in storage.folder(outputs) if item.name == ARCHIVE]
    if not stored:
        return None
    if to is None and not uri.startswith("s3://"):
        return file_path(stored[0].uri).parent if stored[0].name == ARCHIVE else file_path(uri)
    folder = cache if to is None else to
    # What is there of another job may have the same sizes: only the job's own folder is believed.
    missing = [item for item in stored if to is not None or not _is_there(item, folder)]
    if not missing:
        return folder
    names = [item.name for item in stored]
    begin_result(folder, job, names, earlier)
    in_parallel(lambda item: storage.bring(item, folder), [item for item in missing if item.name != MANIFEST])
    finish_result(folder, job, names, earlier)
    # It says that the result is whole.
    for item in stored:
        if item.name == MANIFEST:
            storage.bring(item, folder)
    unmark(folder)
    return folder


def _is_there(item: Stored, folder: Path) -> bool:
    path = folder / item.name
    return path.is_file() and path.stat().st_size == item.size


def value(outputs: str, storage: Storage, *, job: str, python: str) -> Any:
    """Return the value of a function.

    Raises:
        InvalidRequest: Another Python pickled it.
        ServiceError: It is not there, or cannot be unpickled here.
    """
    check_python(python, f"the value of {job}")
    uri = f"{outputs}/model/{VALUE}"
    content = storage.read(uri)
    if content is None:
        raise ServiceError(f"the job {job} is Completed, but its value is not at {uri}: was it removed?")
    try:
        return pickle.loads(content)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"the value of {job} needs the module {error.name!r} here: python3 -m pip install {error.name}"
        ) from error
    except Exception as error:  # unpickling runs the value's own code
        raise ServiceError(f"the value of {job} cannot be unpickled: {type(error).__name__}: {error}") from error


def ended_by_service(job: str, reason: str) -> JobFailed:
    """Return the error of a job that the service ended at one of its limits."""
    return JobFailed(
        f"the job {job} was ended by the service: {reason}; give it more time (limits), or let it go on in follow-up "
        "jobs (limits.max_restarts)",
        job=job,
        reason=reason,
    )


def raised(outputs: str, storage: Storage, *, job: str, python: str | None, reason: str) -> BaseException:
    """Return the exception that says why a job failed.

    Of a function it is its own exception, with the remote traceback in the JobFailed that is its ``__cause__``, as
    ``concurrent.futures`` does it; where that cannot be had, and for every other workload, it is the JobFailed.

    Args:
        outputs: Prefix of the job's outputs.
        storage: Reads them.
        job: The job's name.
        python: The Python that pickled the function; None where the workload is none.
        reason: What the service says.
    """
    failure = _failure(outputs, storage)
    remote = failure.remote_traceback if failure is not None else ""
    headline = failure.headline if failure is not None else reason
    text = f"the job {job} failed: {headline}" + (f"{IN_THE_JOB}{remote}" if remote else "")
    failed = JobFailed(text, job=job, reason=reason or headline, remote_traceback=remote)
    if python is None:
        return failed
    try:
        check_python(python, f"the exception of {job}")
        error = pickle.loads(storage.read(f"{outputs}/data/{EXCEPTION}") or b"")
    except Exception:  # not there, of another Python, or its own code fails here: its text has to do
        return failed
    if not isinstance(error, Exception):  # a KeyboardInterrupt or SystemExit over there must not end this process
        return failed
    error.__cause__ = failed
    return error


def _failure(outputs: str, storage: Storage) -> Failure | None:
    try:
        content = storage.read(f"{outputs}/data/{FAILURE}")
        return from_json(Failure, json.loads(content), "failure") if content else None
    except (ServiceError, InvalidConfig, ValueError):  # the service's own reason has to do
        return None


def with_remedy(error: BaseException, remedy: str) -> BaseException:
    """Return why a job failed, with what the user may do about it."""
    if not isinstance(error, JobFailed):
        # A user's own exception cannot be made again with another text.
        error.add_note(remedy)
        return error
    text = f"{error}\n{remedy}"
    return JobFailed(text, job=error.job, reason=error.reason, remote_traceback=error.remote_traceback)

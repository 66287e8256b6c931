"""The folder that is sent to every instance as the channel ``raysm``.

::

    start.py           run by the instance's Python: verifies, installs, runs ``raysm.instance``
    raysm.zip          raysm itself, so that any image with Python works
    request.json       the JobRequest
    token              the job's secret, hex; only its owner can read it
    source/            the user's source, found by ``contract.source``; never empty, because an
                       object store has no empty folders
    function.pkl       cloudpickle's bytes of ``(function, args, kwargs)`` of a pickled workload
    requirements.txt   the requirements, if any, that pip installs before the instance joins
    wheels/            packages that travel; pip looks here first
    digests.json       SHA-256 of every other file, verified before any of them is used

The API call that creates the job contains the digests of start.py and of digests.json. A user who
may write to the bucket, but not call the API, can therefore not change what an instance runs
(``contract.seal``).

A grid sends the payload in two parts, so that the source of 100,000 rows is uploaded once::

    raysm/       the shared part: start.py, raysm.zip, source/ …; its prefix contains a digest of
                 its content
    raysm-job/   the job's own part: job.json (the request and the digests), token, function.pkl

The instance joins both parts and verifies the whole as usual.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import raysm
from raysm.core.protocol.packages import LIBRARY, library
from raysm.core.protocol.seal import DIGESTS, START, Seal, digests_of, sha256_of_content, verify
from raysm.core.protocol.source import Source, source_of
from raysm.core.protocol.store import OPEN, put, read_json
from raysm.core.request.codec import from_json, to_json
from raysm.core.request.job import JobRequest
from raysm.errors import InvalidConfig, InvalidPayload, InvalidRequest

REQUEST = "request.json"
TOKEN = "token"
SOURCE = "source"
FUNCTION = "function.pkl"
REQUIREMENTS = "requirements.txt"
WHEELS = "wheels"
JOB = "job.json"
"""File of the job's own part; start.py reads it too, before raysm can be imported."""
# The pickle contains the arguments of one row.
OWN = (REQUEST, TOKEN, FUNCTION)
"""Files that differ from job to job."""
PLACEHOLDER = ".raysm"


# Without slots: cached_property keeps its value in __dict__.
@dataclass(frozen=True, kw_only=True)
class Contents:
    """A payload before it is written; its digests are fixed when they are first computed."""

    files: Mapping[str, bytes | Path]
    """Content or local file by name, without DIGESTS."""

    @functools.cached_property
    def digests(self) -> bytes:
        # Cached, because the API call contains this digest; a file that changes later must not
        # change it.
        return json.dumps(
            {name: sha256_of_content(self.files[name]) for name in sorted(self.files)}, indent=1
        ).encode()

    @property
    def seal(self) -> Seal:
        return Seal(
            start=sha256_of_content(self.files[START]), digests=sha256_of_content(self.digests)
        )

    def write(self, folder: Path) -> None:
        # The folder is private, because the source and the pickled arguments have no restricted
        # mode of their own.
        folder.mkdir(parents=True, mode=0o700)
        for name, content in self.files.items():
            path = folder / name
            if isinstance(content, bytes):
                put(path, content, mode=0o600 if name == TOKEN else OPEN)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(content, path)
        # Written last, because a later file would count as added.
        put(folder / DIGESTS, self.digests)
        try:
            verify(folder)
        except InvalidPayload as error:
            raise InvalidRequest(
                f"a file was changed while the job was being sent; send it again: {error}"
            ) from error

    @property
    def shared_digest(self) -> str:
        """SHA-256 of the shared part; jobs with the same digest share it."""
        shared = {
            name: digest for name, digest in json.loads(self.digests).items() if name not in OWN
        }
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()

    def write_shared(self, folder: Path) -> None:
        self.write(folder)
        for name in (*OWN, DIGESTS):
            (folder / name).unlink(missing_ok=True)

    def own_part(self) -> Mapping[str, bytes]:
        files = {name: self.files[name] for name in OWN if name in self.files}
        contents = {name: content for name, content in files.items() if isinstance(content, bytes)}
        assert contents.keys() == files.keys(), "made here, never files of the user's"
        # One object, because each object costs a request for each row.
        job = {"digests": self.digests.decode(), "request": contents.pop(REQUEST).decode()}
        return {JOB: json.dumps(job).encode(), **contents}


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    folder: Path
    request: JobRequest
    """The user's request; a script's path is relative to ``source``."""
    token_file: Path
    digest: str
    """SHA-256 of ``digests.json``; instances with the same digest have the same payload."""

    @property
    def source(self) -> Path:
        return self.folder / SOURCE

    @property
    def code_digest(self) -> str:
        """SHA-256 of what the user's program consists of, and of its environment.

        Equal for two jobs of the same source, requirements, wheels and environment variables.
        """
        digests: dict[str, str] = json.loads((self.folder / DIGESTS).read_bytes())
        parts = {
            name: digest
            for name, digest in digests.items()
            if name.partition("/")[0] in (SOURCE, REQUIREMENTS, WHEELS)
        }
        text = json.dumps([parts, dict(self.request.environment)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def function(self) -> Path:
        return self.folder / FUNCTION

    @property
    def requirements(self) -> Path | None:
        path = self.folder / REQUIREMENTS
        return path if path.exists() else None

    @property
    def wheels(self) -> Path | None:
        path = self.folder / WHEELS
        return path if path.is_dir() else None

    def token(self) -> bytes:
        return self.token_file.read_bytes()


def contents_of(
    request: JobRequest,
    *,
    source: Source | None = None,
    function: bytes | None = None,
    wheels: Sequence[Path] = (),
    token: bytes | None = None,
) -> Contents:
    """Return the payload of ``request``.

    Its code is a source (None finds a script's) or a pickled function.
    """
    is_pickled = request.workload.pickled_by is not None
    assert (function is not None) == is_pickled, "a function goes with its pickle"
    script = request.workload.entry_script
    if script is not None:
        source = source or source_of(script)
        assert source.script is not None, "a script travels with what it imports"
        # The request must not contain a path of this machine.
        request = dataclasses.replace(request, workload=script.moved_to(source.script))
    check_wheels(wheels)
    files: dict[str, bytes | Path] = {}
    if source is not None:
        files |= {f"{SOURCE}/{name}": path for name, path in source.files.items()}
    if not files:
        files[f"{SOURCE}/{PLACEHOLDER}"] = b""
    if function is not None:
        files[FUNCTION] = function
    if request.requirements:
        files[REQUIREMENTS] = ("\n".join(request.requirements) + "\n").encode()
    files |= {f"{WHEELS}/{wheel.name}": wheel for wheel in wheels}
    files[REQUEST] = json.dumps(to_json(request), indent=1).encode()
    own_files = _own_files()
    return Contents(files=files | own_files | ({} if token is None else {TOKEN: token}))


def pack_driver(folder: Path) -> None:
    """Write raysm's files for a job of the SageMaker SDK into ``folder``, which must not exist yet.

    The files are a payload without a request and a source, which each instance makes from the SDK's
    files.
    """
    Contents(files=_own_files()).write(folder)


def pack_here(request: JobRequest, folder: Path, *, source: Path, token_file: Path) -> None:
    """Write, in an instance, the payload of a job of the SageMaker SDK, with a link to its source.

    The token is the same in every instance.
    """
    script = request.workload.entry_script
    assert script is not None, "other workloads travel with a payload"
    if not (source / script.script).is_file():
        raise InvalidRequest(f"{source} holds no script {script.script!r}")
    folder.mkdir(parents=True, mode=0o700)
    # Only the link has a digest, because the SDK sends the code itself.
    (folder / SOURCE).symlink_to(source, target_is_directory=True)
    put(folder / REQUEST, json.dumps(to_json(request), indent=1))
    # _own_files would make another token in every instance.
    put(folder / TOKEN, token_file.read_bytes(), mode=0o600)
    put(folder / DIGESTS, json.dumps(digests_of(folder), indent=1))


def _own_files() -> dict[str, bytes | Path]:
    return {
        START: (Path(raysm.__file__).parent / "instance" / START).read_bytes(),
        LIBRARY: library(),
        # A file, because DescribeTrainingJob shows environment variables.
        TOKEN: secrets.token_hex(32).encode(),
    }


def check_wheels(wheels: Sequence[Path]) -> None:
    paths: dict[str, Path] = {}
    for wheel in wheels:
        if not wheel.is_file():
            raise InvalidRequest(
                f"the wheel {str(wheel)!r} is not there, or is no file; build it, or drop it"
            )
        # All wheels travel in one folder, where the second would replace the first.
        if wheel.name in paths:
            raise InvalidRequest(
                f"two wheels are named {wheel.name!r}: "
                f"{paths[wheel.name]} and {wheel}; give one of them"
            )
        paths[wheel.name] = wheel


def load(folder: Path) -> Payload:
    digests = verify(folder, TOKEN, REQUEST)
    request = read_request(folder)
    if request.workload.pickled_by is not None:
        _check_function(request.workload.title, request.workload.pickled_by, digests)
    digest = hashlib.sha256((folder / DIGESTS).read_bytes()).hexdigest()
    return Payload(folder=folder, request=request, token_file=folder / TOKEN, digest=digest)


def read_request(folder: Path) -> JobRequest:
    """Read the request without verifying the payload, which the instance has verified already."""
    try:
        with _importable(folder / SOURCE):
            return from_json(JobRequest, read_json(folder / REQUEST))
    except (InvalidConfig, InvalidRequest) as error:
        raise InvalidPayload(f"the payload's {REQUEST} cannot be used: {error}") from error


@contextlib.contextmanager
def _importable(source: Path) -> Iterator[None]:
    """Put the user's source into ``sys.path`` during the body.

    The source may define the kind of the workload.

    Afterwards the bootstrap must not import a user's module that has the name of one of Python's.
    """
    # Bytecode in the payload would count as added when the next process of the job verifies it.
    writes_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(source))
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_bytecode
        with contextlib.suppress(ValueError):  # the imported module may have changed sys.path
            sys.path.remove(str(source))


def _check_function(name: str, python: str, digests: Mapping[str, str]) -> None:
    if FUNCTION not in digests:
        raise InvalidPayload(f"the payload's file {FUNCTION!r} is missing")
    # cloudpickle pickles functions as bytecode, which changes only with the minor version.
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python != version:
        raise InvalidPayload(
            f"the function {name} was pickled by Python {python}, "
            f"but this instance has {version}, which may read the pickle wrongly; "
            f"use an image with Python {python}, or submit from Python {version}"
        )


def join(shared: Path, job_part: Path, folder: Path) -> Path:
    """Join both parts into a payload in ``folder``, which must not exist yet.

    Return the folder, unverified.
    """
    try:
        job = read_json(job_part / JOB)
        digests = str(job["digests"])
        request = str(job["request"])
        optional = [name for name in (FUNCTION,) if (job_part / name).exists()]
        files = {name: (job_part / name).read_bytes() for name in (TOKEN, *optional)}
    except (InvalidConfig, OSError, KeyError, TypeError) as error:
        raise InvalidPayload(
            f"no payload: the job's own part in {job_part} cannot be read: {error}"
        ) from error
    # Copies, because Python takes the folder of a link's target for a script's own folder.
    shutil.copytree(shared, folder)
    folder.chmod(0o700)
    put(folder / REQUEST, request)
    for name, content in files.items():
        put(folder / name, content, mode=0o600)
    put(folder / DIGESTS, digests)
    return folder

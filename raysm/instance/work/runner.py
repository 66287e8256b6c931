"""Runners: each runs one kind of workload on the head, in the driver.

This module must import nothing heavy, because a module may hold a kind with its runner, and every
instance imports it.
"""

import contextlib
import hashlib
import importlib
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, Generic, NoReturn, TypeVar, cast

import raysm
from raysm.core.protocol.events import Digest, line
from raysm.core.protocol.packages import installed_version
from raysm.core.protocol.payload import Payload
from raysm.core.protocol.result import MANIFEST, VALUE, Manifest, ResultFile, described_file
from raysm.core.protocol.store import is_unfinished, put, sha256_of
from raysm.core.request import JobRequest, Workload
from raysm.core.request.codec import to_json
from raysm.core.request.workload import without_secrets
from raysm.errors import InvalidRequest, MissingDependency
from raysm.instance.environment import Environment
from raysm.instance.exit_status import end_beside
from raysm.instance.log import copy_to_log
from raysm.instance.work import forks  # noqa: F401 - forked processes forget the handlers below

STDOUT = 1

W = TypeVar("W", bound=Workload)


class Runner(Generic[W]):
    """Does one workload; kinds override ``run``, and ``prepare`` if they set ``prepares_ahead``."""

    def __init__(self, payload: Payload, environment: Environment) -> None:
        self.workload = cast(W, payload.request.workload)
        self.payload = payload
        self.environment = environment

    @property
    def request(self) -> JobRequest:
        return self.payload.request

    def prepare(self) -> None:
        """Do what needs no cluster while the cluster forms: import, compile, look at the inputs."""

    def run(self, address: str) -> None:
        """Run the workload, from connecting to Ray to the last file of the result.

        ``address`` is the cluster's ``IP:port`` for ``ray.init``, or ``auto`` if a variable names
        it.
        """
        raise NotImplementedError(f"{type(self).__name__} must override run()")

    def keep_value(self, pickled: bytes) -> None:
        """Write the pickled value of a kind with ``returns_value``, and its digest into the log."""
        keep_pickle(self.environment.paths.model / VALUE, pickled, VALUE)

    def mark_end(self) -> None:
        """Report that the workload has ended; a kind that sets ``marks_end`` calls it last."""
        if self.environment.failure_record is not None:
            end_beside(self.environment.failure_record).touch()

    def describe_result(self, phases_s: Mapping[str, float], **details: Any) -> None:
        """Write the manifest of the model folder after all other files.

        ``details`` go to ``write_manifest``.
        """
        hosts = tuple(host.name for host in self.environment.hosts)
        write_manifest(
            self.request,
            self.environment.paths.model,
            instances=hosts,
            phases_s=phases_s,
            **details,
        )


def keep_pickle(path: Path, pickled: bytes, name: str) -> None:
    """Write a pickle that the client reads, and publish its digest.

    Without the digest, the client reads no pickle on AWS.

    ``name`` is the file's name in the event.
    """
    # Hashed while it is written: a gigabyte takes about a second.
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(hashlib.sha256, pickled)
        put(path, pickled)
    text = line(Digest(file=name, sha256=digest.result().hexdigest()))
    # What the user's code has printed comes before it. That code may have replaced sys.stdout by
    # anything.
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    copy_to_log(STDOUT, f"{text}\n".encode())


def load_runner(payload: Payload, environment: Environment) -> "Runner[Any]":
    workload = payload.request.workload
    # The request has only the name, because few of the machines that read it have the packages of
    # the runner.
    module, _, name = workload.runner.partition(":")
    with naming_what_is_missing(workload):
        runner = getattr(importlib.import_module(module), name, None)
    if runner is None:
        raise InvalidRequest(
            f"the workload {workload.kind} names the runner {workload.runner!r}, "
            f"but {module} has no {name}"
        )
    # Outside of the ``with``, because only a missing import is the image's fault.
    instance: Runner[Any] = runner(payload, environment)
    return instance


@contextlib.contextmanager
def naming_what_is_missing(workload: Workload, unnamed: str = "") -> Iterator[None]:
    """Turn an ImportError into MissingDependency, which names the package.

    ``unnamed`` stands for one without a name.
    """
    try:
        yield
    # Not ModuleNotFoundError alone: an installed package may be too old, or lack a system library.
    except ImportError as error:
        remedy = "it to the requirements"
        if workload.extra is not None:
            remedy = f"raysm's extra: python3 -m pip install 'raysm[{workload.extra}]'"
        raise MissingDependency(
            f"the image lacks {error.name or unnamed or error}, "
            f"which {workload.label} needs; add {remedy}"
        ) from error


def leave() -> NoReturn:
    """Exit with 0 at once; for work whose result is on the disk.

    This skips ``ray.shutdown`` (0.3 s) and the teardown of an interpreter that has imported Ray
    (0.2 s). The bootstrap ends Ray afterwards, with everything that Ray keeps for this driver.
    """
    # ``os._exit`` flushes nothing.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def leave_on_sigterm(clean: Callable[[], None] = lambda: None) -> None:
    """On SIGTERM, call ``clean()`` and exit with 143 at once.

    This is for work whose finished parts are on the disk.

    The handler does not unwind the stack: an exception that it raised could get lost while Ray
    waits, and unwinding would cancel tasks that are just ending, on which Ray 2.60 aborts
    ("Tried to complete task that was not pending"). The bootstrap ends Ray afterwards. ``ray.init``
    installs a handler of its own, so call this function after it, and also before it if SIGTERM may
    come earlier. Processes that this one forks do not inherit the handler.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        # ``forks`` removes the handler from forked processes; this is for one that is just being
        # made.
        if os.getpid() != owner:
            os._exit(128 + number)
        try:
            clean()
        finally:
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


beginning: dict[str, float] = {}
"""A measure of the manifest, ``start_s``: seconds from the start of the instance to that of the
workload."""


def note_beginning(environment: Environment) -> None:
    if environment.began_s is not None:
        beginning["start_s"] = round(time.monotonic() - environment.began_s, 3)


def write_manifest(
    request: JobRequest,
    folder: Path,
    *,
    instances: tuple[str, ...],
    phases_s: Mapping[str, float],
    packages: tuple[str, ...] = (),
    described: tuple[ResultFile, ...] = (),
    measures: Mapping[str, float] | None = None,
    summary: str = "",
) -> Manifest | None:
    """Write the manifest into ``folder``, the head's model folder, as the last file of the result.

    ``packages`` are recorded with their versions, beside raysm, Python and Ray; ``described`` files
    come first. Returns the manifest without the files of other instances; None if the only instance
    left nothing, or if the user's code has written a file of that name.
    """
    # A user's own file of that name is part of the result; ours would destroy it.
    if (folder / MANIFEST).exists():
        return None
    names = {file.name for file in described}
    # Leave out half-written files of a process that was just killed.
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and not is_unfinished(path.name)
    )
    others = [path for path in paths if path.relative_to(folder).as_posix() not in names]
    files = (*described, *(_file(path, folder) for path in others))
    # Other instances may leave files, which the head adds at the end of the job.
    if not files and len(instances) == 1:
        return None
    workload = to_json(request.workload)
    if "args" in workload:
        # The manifest lies with the result, which more people may read than the payload.
        workload["args"] = without_secrets(workload["args"])
    versions = {"raysm": raysm.__version__, "python": platform.python_version()}
    installed = ((package, installed_version(package)) for package in ("ray", *packages))
    manifest = Manifest(
        job=request.name,
        workload=workload,
        inputs={name: to_json(channel) for name, channel in request.inputs.items()},
        files=files,
        versions=versions | {name: version for name, version in installed if version is not None},
        instances=instances,
        phases_s={name: round(seconds, 3) for name, seconds in phases_s.items()},
        measures={**(measures or {}), **beginning},
        summary=summary,
    )
    manifest.write(folder)
    return manifest


def _file(path: Path, folder: Path) -> ResultFile:
    return described_file(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_of(path))

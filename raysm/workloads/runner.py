"""Runners: each runs one kind of workload on the head, in the driver.

Nothing heavy is imported here: every instance reads a module that holds both a kind and its runner.
"""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Generic, NoReturn, TypeVar, cast

from raysm.bootstrap.environment import Environment
from raysm.contract.payload import Payload
from raysm.errors import InvalidRequest, MissingDependency
from raysm.request import JobRequest, Workload
from raysm.workloads.manifest import write_manifest

__all__ = ["Runner", "leave", "leave_on_sigterm", "load_runner", "naming_what_is_missing"]

W = TypeVar("W", bound=Workload)


class Runner(Generic[W]):
    """Does one workload. A kind overrides ``run``, and ``prepare`` where it says ``prepares_ahead``.

    Attributes:
        workload: What is asked for.
        payload: Where the source lies, and what was pickled.
        environment: What the head was told: hosts, channels, folders.
    """

    def __init__(self, payload: Payload, environment: Environment) -> None:
        self.workload = cast(W, payload.request.workload)
        self.payload = payload
        self.environment = environment

    @property
    def request(self) -> JobRequest:
        """The whole request."""
        return self.payload.request

    def prepare(self) -> None:
        """Make ready what needs no cluster, while it forms: imports, compiling, a first look at the inputs."""

    def run(self, address: str) -> None:
        """Do it, from joining Ray to the last file of the result.

        Args:
            address: ``IP:port`` of the formed cluster, for ``ray.init``; ``auto`` where a variable names it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs")

    def describe_result(self, phases_s: Mapping[str, float], **details: Any) -> None:
        """Write the manifest of what was left in the model folder, once all of it is there.

        Args:
            phases_s: Seconds of each phase.
            details: What else ``write_manifest`` takes.
        """
        hosts = tuple(host.name for host in self.environment.hosts)
        write_manifest(self.request, self.environment.paths.model, instances=hosts, phases_s=phases_s, **details)


def load_runner(payload: Payload, environment: Environment) -> "Runner[Any]":
    """Import and make the runner that the payload's workload names.

    Raises:
        MissingDependency: The image lacks what it imports.
        InvalidRequest: Its module has no such runner.
    """
    workload = payload.request.workload
    # By name: the request is read by clients and by all instances, few of which have what the runner imports.
    module, _, name = workload.runner.partition(":")
    with naming_what_is_missing(workload):
        runner = getattr(importlib.import_module(module), name, None)
    if runner is None:
        raise InvalidRequest(
            f"the workload {workload.kind} names the runner {workload.runner!r}, but {module} has no {name}"
        )
    # Outside of the ``with``: only what an import lacks is the image's fault.
    instance: Runner[Any] = runner(payload, environment)
    return instance


@contextlib.contextmanager
def naming_what_is_missing(workload: Workload, unnamed: str = "") -> Iterator[None]:
    """Turn an ImportError of raysm's own code into what the image lacks, and where it is to be had.

    Args:
        workload: The workload that needs it.
        unnamed: What is said of an error that names no module.

    Raises:
        MissingDependency: An import failed.
    """
    try:
        yield
    # Not ModuleNotFoundError alone: a package that is there may lack a library of the system, or be too old.
    except ImportError as error:
        remedy = "it to the requirements"
        if workload.extra is not None:
            remedy = f"raysm's extra: python3 -m pip install 'raysm[{workload.extra}]'"
        raise MissingDependency(
            f"the image lacks {error.name or unnamed or error}, which {workload.label} needs; add {remedy}"
        ) from error


def leave() -> NoReturn:
    """Leave the process with 0; for work that is done, and on the disk.

    Without ``ray.shutdown``, which takes 0.3 s, and the end of an interpreter with Ray in it, which takes 0.2: the
    bootstrap ends Ray afterwards, and with it what Ray keeps of this driver.
    """
    # ``os._exit`` flushes nothing.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def leave_on_sigterm(clean: Callable[[], None] = lambda: None) -> None:
    """Leave the process with 143 when SIGTERM comes, after ``clean()``; for work whose finished parts are on disk.

    Without unwinding: an exception that a handler raises can get lost in a wait of Ray's, and unwinding would cancel
    tasks that are just ending, over which Ray 2.60 aborts ("Tried to complete task that was not pending"). The
    bootstrap ends Ray afterwards. Ray puts a handler of its own in the place of this one: call it after ``ray.init``,
    and before, where SIGTERM may come earlier.
    """

    def end(number: int, frame: FrameType | None) -> None:
        try:
            clean()
        finally:
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)

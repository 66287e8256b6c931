"""A workload with all of this machine that has to travel with it.

What flows in is what the user submits: a ``Workload``, or something that pickles one (``Function``, ``DataParallel``);
what flows out is a ``Package``, in which nothing of that difference is left.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from raysm.client.own_modules import source_of_kind
from raysm.contract.source import Source, source_of
from raysm.errors import InvalidRequest
from raysm.request import Workload
from raysm.request.workload import check_kind, require_workload

__all__ = ["Package", "Wrapped", "package_of"]


@dataclass(frozen=True, kw_only=True)
class Package:
    """What travels."""

    workload: Workload
    """What is asked for."""
    title: str
    """What a job is named after where the user gives no name."""
    source: Source | None
    """Files of the user's."""
    pickled: bytes | None
    """The pickle that goes with the workload."""


@runtime_checkable
class Wrapped(Protocol):
    """What is submitted where the workload's code has to be pickled first."""

    def workload(self) -> Workload:
        """Return what stands for it in the request."""

    def pickled(self) -> bytes | None:
        """Return the pickle that goes with it; None where nothing is pickled."""

    def source(self) -> Source | None:
        """Return the files that go with it."""

    def title(self) -> str:
        """Return what a job is named after where the user gives no name."""


@runtime_checkable
class SubmitsItself(Protocol):
    """What is not submitted by others: a function decorated with ``raysm.remote``."""

    # Known by its methods, not its class: that one calls submit, which calls this module.

    def submit(self, *args: Any, **kwargs: Any) -> object:
        """Submit it."""

    def options(self, **options: Any) -> object:
        """Return the same with other options."""


def package_of(workload: object) -> Package:
    """Pickle and find what travels with a workload; a package is what it was made of, for many jobs of one pickle.

    Raises:
        InvalidRequest: It is no workload, or something of it cannot travel.
    """
    if isinstance(workload, Package):
        return workload
    if isinstance(workload, SubmitsItself):
        raise InvalidRequest("a function decorated with raysm.remote is submitted by its own submit(…)")
    # The class itself, Function instead of Function(fn), has these methods too.
    if isinstance(workload, Wrapped) and not isinstance(workload, type):
        kind = workload.workload()
        check_kind(type(kind))
        source, pickled, title = workload.source(), workload.pickled(), workload.title()
    else:
        kind = require_workload(workload)
        script = kind.entry_script
        source, pickled, title = None if script is None else source_of(script), None, kind.title
    return Package(workload=kind, title=title, source=_together(source, source_of_kind(type(kind))), pickled=pickled)


def _together(source: Source | None, of_kind: Source | None) -> Source | None:
    """Return the files of the user's code, and of the module that defines its kind, as one source."""
    if source is None or of_kind is None:
        return source or of_kind
    for name, path in of_kind.files.items():
        other = source.files.get(name, path)
        # A script may import the module of its kind: then it is one file, found twice.
        if other.resolve() != path.resolve():
            raise InvalidRequest(
                f"two files would travel as {name!r}: {other}, of the script, and {path}, of its kind of workload; "
                "rename one of them"
            )
    return replace(
        source,
        files={**of_kind.files, **source.files},
        left_behind={**of_kind.left_behind, **source.left_behind},
    )

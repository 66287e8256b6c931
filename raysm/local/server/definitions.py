"""What the server needs from a request, in one form for all APIs.

Each API has a module that reads its requests. To serve another API, write a module with the same
functions as ``training_request`` and add one entry to ``SERVED``.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from raysm.core.protocol.job_api import PROCESSING, TRAINING, JobApi
from raysm.core.protocol.names import INSTANCE_KIND_TAG
from raysm.core.protocol.paths import DEFAULT_BASE
from raysm.core.request.targets import INSTANCE_KINDS, kind_of_image
from raysm.local.server.validation import validation

BASE = PurePosixPath(DEFAULT_BASE)
EndReason: TypeAlias = Literal["stop", "interrupt", "runtime", "wait", "pending", "shutdown"]
"""Why the server ends a job before its instances end by themselves."""

SERVED = {
    TRAINING: "raysm.local.server.training_request",
    PROCESSING: "raysm.local.server.processing_request",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    name: str
    uri: str
    manifest: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    place: PurePosixPath
    """Relative to the base folder."""
    uri: str
    archive: bool = False
    even_empty: bool = False
    unless_failed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """What ``JobLife`` needs from a request."""

    sources: Sequence[Source]
    outputs: Sequence[Output]
    instances: int
    max_runtime_s: float
    max_wait_s: float | None = None
    """Seconds from the request to the end of a job on spot capacity, waiting and running."""
    max_pending_s: float | None = None
    spot: bool = False
    retries: int = 0
    metrics: Sequence[Mapping[str, str]] = field(default_factory=tuple)
    artifacts: str | None = None
    kms_key: str | None = None

    def find_exceeded(self, *, waited_s: float, ran_s: float, pending: bool) -> EndReason | None:
        if self.max_wait_s is not None and waited_s > self.max_wait_s:
            return "wait"
        if ran_s > self.max_runtime_s:
            return "runtime"
        if pending and self.max_pending_s is not None and waited_s > self.max_pending_s:
            return "pending"
        return None

    def left_s(self, *, waited_s: float, ran_s: float) -> float:
        left_s = self.max_runtime_s - ran_s
        return left_s if self.max_wait_s is None else min(left_s, self.max_wait_s - waited_s)


Sources: TypeAlias = Mapping[str, tuple[Path, bool]]
"""The path of each channel's data on this machine, and whether the job owns the data."""


def request_module(api: JobApi) -> Any:
    """Return the module of an API's requests.

    The module has ``check``, ``image``, ``command``, ``define`` and ``specify``.
    """
    return importlib.import_module(SERVED[api])


def build_command(
    entrypoint: Sequence[str] | None, arguments: Sequence[str] | None, default: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command of an instance.

    An empty first word is the image's own entry point, which only Docker knows. ``default`` are the
    arguments that the service gives to that entry point.
    """
    return (*entrypoint, *(arguments or ())) if entrypoint else ("", *(arguments or default))


def choose_kind(image: str, tags: Mapping[str, str], default: str) -> str:
    name = tags.get(INSTANCE_KIND_TAG)
    if name is None:
        # An image's name may choose a kind too, for requests without raysm's tag.
        named = kind_of_image(image)
        return default if named is None else named.name
    if name not in INSTANCE_KINDS:
        raise validation(
            f"the tag {INSTANCE_KIND_TAG}={name!r} names no kind of instance: "
            f"{', '.join(INSTANCE_KINDS)}"
        )
    return name


def local_part(what: str, path: str, within: PurePosixPath = BASE) -> PurePosixPath:
    """Return the absolute ``path`` relative to the base folder.

    Raise ApiError if it is not below ``within``.
    """
    place = PurePosixPath(path)
    # Pure paths do not resolve ``..``.
    if ".." in place.parts or not place.is_relative_to(within) or place == within:
        raise validation(f"{what}: the path {path!r} must lie below {within}")
    return place.relative_to(BASE)


def seconds(condition: Mapping[str, Any], name: str, default: float) -> float:
    return float(condition.get(name) or default)

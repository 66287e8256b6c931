"""The parts of a request that a job's life needs, the same for all APIs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from raysm.contract.names import INSTANCE_KIND_TAG
from raysm.contract.paths import DEFAULT_BASE
from raysm.local.server.validation import validation
from raysm.request.targets import INSTANCE_KINDS, kind_of_image

__all__ = ["BASE", "Definition", "Output", "Source", "command_of", "kind_of", "local_part", "seconds"]

BASE = PurePosixPath(DEFAULT_BASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A channel that is to be brought."""

    name: str
    """Of the channel."""
    uri: str
    """``s3://…`` or ``file:///…``."""
    manifest: bool = False
    """Whether the URI is that of a manifest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """A folder of the instances that is collected at the end."""

    place: PurePosixPath
    """Relative to the base folder."""
    uri: str
    """Where to: a prefix, or with ``archive`` the object itself."""
    archive: bool = False
    """Whether it becomes one ``.tar.gz``."""
    even_empty: bool = False
    """Whether there is an archive also of nothing."""
    only_of_the_good: bool = False
    """Whether a job that failed leaves none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A job as its lifecycle sees it."""

    sources: Sequence[Source]
    """The channels to bring before it starts."""
    outputs: Sequence[Output]
    """What to collect when it has ended."""
    instances: int
    """How many there are."""
    max_runtime_s: float
    """Seconds that its instances may run."""
    max_wait_s: float | None = None
    """Of a job on spot capacity: seconds from the request to the end, waiting and running."""
    max_pending_s: float | None = None
    """Seconds that it may wait for its turn."""
    spot: bool = False
    """Whether it may be interrupted."""
    retries: int = 0
    """How often it is started again after an InternalServerError."""
    remote_debug: bool = False
    """Whether its instances run the agent of remote debugging."""
    metrics: Sequence[Mapping[str, str]] = field(default_factory=tuple)
    """Definitions of metrics."""
    artifacts: str | None = None
    """Where its model will be."""
    kms_key: str | None = None
    """Encrypts what goes to S3."""


def command_of(image: str, entrypoint: Sequence[str] | None, arguments: Sequence[str] | None) -> tuple[str, ...]:
    """Return the main process.

    Raises:
        ApiError: The request leaves it to the image, of which nothing is known here.
    """
    # It stands in the image, which no instance but a container ever sees.
    if not entrypoint:
        raise validation(
            f"the embedded SageMaker does not know the entry point of the image {image!r}: give ContainerEntrypoint, "
            "or, as AWS's framework images take them, the hyperparameters sagemaker_program and "
            "sagemaker_submit_directory"
        )
    return (*entrypoint, *(arguments or ()))


def kind_of(image: str, tags: Mapping[str, str], default: str) -> str:
    """Return what plays the instances of a job.

    Raises:
        ApiError: The tag names no kind.
    """
    name = tags.get(INSTANCE_KIND_TAG)
    if name is None:
        # An image's name may choose a kind too, for a request that carries no tag of raysm's.
        named = kind_of_image(image)
        return default if named is None else named.name
    if name not in INSTANCE_KINDS:
        raise validation(f"the tag {INSTANCE_KIND_TAG}={name!r} names no kind of instance: {', '.join(INSTANCE_KINDS)}")
    return name


def local_part(what: str, path: str, least: PurePosixPath = BASE) -> PurePosixPath:
    """Return an absolute path of the instance relative to the base folder.

    Raises:
        ApiError: It does not lie below ``least``.
    """
    place = PurePosixPath(path)
    # Pure paths are compared part by part: one with ``..`` would pass as lying below.
    if ".." in place.parts or not place.is_relative_to(least) or place == least:
        raise validation(f"{what}: the path {path!r} must lie below {least}")
    return place.relative_to(BASE)


def seconds(condition: Mapping[str, Any], name: str, default: float) -> float:
    """Return a limit of time."""
    return float(condition.get(name) or default)

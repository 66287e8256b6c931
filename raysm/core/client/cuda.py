"""Compare the CUDA of an image, or of a required torch, with the GPUs of the instance types.

An image's driver is the host's, which is known only in the instance (``raysm.instance.gpus``).
"""

import functools
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from raysm.core.client.checks import parse_requirement
from raysm.core.client.images import (
    cuda_in_tag,
    cuda_of,
    is_arm,
    is_of_aws,
    python_of,
    torch_of,
)
from raysm.core.client.source.lock import wheel_requirement
from raysm.core.protocol.instance_types import OR_CPUS, Gpu, gpu_of
from raysm.core.protocol.packages import is_locked, name_of, release_of, without_credentials
from raysm.core.request import Cluster
from raysm.errors import InvalidRequest

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.requirements import Requirement

_log = logging.getLogger("raysm")

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Architecture:
    capability: Version
    """The first compute capability of the architecture."""
    name: str
    first: Version
    """The first CUDA that compiles for it."""
    last: int | None
    """The last major version of CUDA that compiles for it; None if there is no end yet."""


ARCHITECTURES = (
    Architecture((3, 5), "Kepler", (6, 0), 11),
    Architecture((5, 0), "Maxwell", (6, 5), 12),
    Architecture((7, 0), "Volta", (9, 0), 12),
    Architecture((7, 5), "Turing", (10, 0), None),
    # Code for 8.0 runs on Ada (8.9) too, as on all GPUs of the same major version.
    Architecture((8, 0), "Ampere", (11, 0), None),
    Architecture((9, 0), "Hopper", (11, 8), None),
    Architecture((10, 0), "Blackwell", (12, 8), None),
)
"""https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"""

RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
"""The package with CUDA's runtime, of which torch's wheels need exactly one version."""
LOCAL_VERSION = re.compile(r"\+(?:cpu|cu(\d{2})(\d))(?!\w)")
"""In versions and wheels of torch: ``2.8.0+cu128``, ``2.8.0+cpu``."""


@dataclass(frozen=True, slots=True)
class Build:
    """The CUDA that a job's torch would have."""

    source: str
    """Where it is from: the image, or a requirement."""
    cuda: Version | None
    """None if it computes on CPUs only."""
    is_certain: bool
    """False if only the tag of a user's own image says so, or if another torch may be installed."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    problem: str
    remedy: str
    is_certain: bool


def architecture_of(gpu: Gpu) -> Architecture:
    return [each for each in ARCHITECTURES if each.capability <= gpu.capability][-1]


def check_cuda(
    cluster: Cluster,
    image: str,
    requirements: Iterable[str],
    wheels: Iterable[Path] = (),
    python: str | None = None,
) -> None:
    """Refuse an image, or a torch, that has no code for the GPUs of the instances.

    If it is not certain which torch the job has, this only warns.

    Args:
        cluster: The instances.
        image: The URI of the image.
        requirements: The lines for pip.
        wheels: The wheels that are sent.
        python: The version of Python of the image, ``3.12``; None if unknown.
    """
    types = [name for name in cluster.types if gpu_of(name) is not None]
    if cluster.allow_cpu or not types:
        return
    for instance_type in types:
        build = find_build(instance_type, image, requirements, wheels, python)
        mismatch = find_mismatch(instance_type, build)
        if mismatch is None:
            continue
        if mismatch.is_certain:
            raise InvalidRequest(mismatch.problem, remedy=mismatch.remedy)
        _warn_once(f"{mismatch.problem}; {mismatch.remedy}")


# Cached, because a grid checks thousands of jobs that have one image.
@functools.lru_cache(maxsize=256)
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


def find_build(
    instance_type: str,
    image: str,
    requirements: Iterable[str],
    wheels: Iterable[Path] = (),
    python: str | None = None,
) -> Build | None:
    """Return the CUDA of the torch that is required, else of the image; None if it is unknown.

    ``instance_type`` has the machine for which a requirement's marker may ask.
    """
    known = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "aarch64" if is_arm(instance_type) else "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    python = python or python_of(image)
    if python is not None:
        known["python_version"] = python
    names = tuple(Path(wheel).name for wheel in wheels)
    return _find_build(image, tuple(requirements), names, tuple(known.items()))


# Cached, because a grid sends thousands of jobs with one lock.
@functools.lru_cache(maxsize=64)
def _find_build(
    image: str,
    requirements: tuple[str, ...],
    wheels: tuple[str, ...],
    known: tuple[tuple[str, str], ...],
) -> Build | None:
    lines = [(name_of(line), line) for line in (*requirements, *map(wheel_requirement, wheels))]
    torches = _applying([line for name, line in lines if name == "torch"], dict(known))
    if torches is None:
        return None
    if torches:
        runtimes = _applying([line for name, line in lines if RUNTIME.fullmatch(name)], dict(known))
        builds = {_build_of(torch, runtimes or [], image) for torch in torches}
        # A lock for several systems may have several; pip decides.
        return builds.pop() if len(builds) == 1 else None
    build = _build_of_image(image)
    if build is not None and any(map(_may_bring_torch, (*requirements, *wheels))):
        source = f"{build.source}, unless a requirement brings another torch,"
        return replace(build, source=source, is_certain=False)
    return build


def _applying(lines: Iterable[str], known: Mapping[str, str]) -> "list[Requirement] | None":
    """Return the requirements whose markers hold; None if that is unknown of one."""
    found = []
    for line in lines:
        requirement = parse_requirement(line)
        if requirement is None:
            return None
        holds = _holds(requirement.marker, known)
        if holds is None:
            return None
        if holds:
            found.append(requirement)
    return found


def _holds(marker: "Marker | None", known: Mapping[str, str]) -> bool | None:
    """Return whether a marker holds on an instance; None if it asks for what is unknown."""
    if marker is None:
        return True
    words = re.sub(r"([\"']).*?\1", "", str(marker))
    asked = set(re.findall(r"[a-z]+(?:_[a-z]+)+", words))
    python = known.get("python_version")
    if python is not None:
        asked.discard("python_full_version")
    if asked - known.keys():
        return None
    # The patch release is unknown.
    answers = {
        marker.evaluate({**known, "python_full_version": f"{python or '3'}.{patch}"})
        for patch in (0, 99)
    }
    return answers.pop() if len(answers) == 1 else None


def _build_of(torch: "Requirement", runtimes: "Iterable[Requirement]", image: str) -> Build | None:
    """Return the CUDA of a required torch: ``torch==2.8.0+cu128``, or that of its runtime."""
    version = _pinned(torch)
    if torch.url is not None:
        source = f"the requirement torch @ {without_credentials(torch.url)}"
        named = LOCAL_VERSION.search(unquote(torch.url).rpartition("/")[2])
    else:
        source = f"the requirement torch=={version}"
        named = LOCAL_VERSION.search(version)
    if named is not None:
        cuda = None if named[1] is None else (int(named[1]), int(named[2]))
        return Build(source, cuda, is_certain=True)
    pinned = {
        f"{name_of(each.name)}=={_pinned(each)}": found
        for each in runtimes
        if (found := re.match(r"(\d+)\.(\d+)\.", _pinned(each)))
    }
    if not version or len(pinned) != 1:
        return None
    ((runtime, found),) = pinned.items()
    # pip keeps the torch of an image that is of the same release, whatever its CUDA is.
    of_image = torch_of(image)
    is_other = of_image is not None and release_of(of_image)[:2] != release_of(version)[:2]
    return Build(f"the requirement {runtime}", (int(found[1]), int(found[2])), is_certain=is_other)


def _pinned(requirement: "Requirement") -> str:
    """Return the version that a requirement pins, without wildcards; empty if it pins none."""
    for each in requirement.specifier:
        if each.operator in ("==", "===") and not each.version.endswith(".*"):
            return each.version
    return ""


def _may_bring_torch(line: str) -> bool:
    """Return whether pip may install a torch because of a line or of a wheel that is sent.

    A locked line brings nothing but itself. A wheel of Ray needs no torch.
    """
    is_requirement = bool(line) and not line.startswith(("#", "-"))
    return is_requirement and not is_locked(line) and not re.fullmatch(r"ray-.*\.whl", line)


def _build_of_image(image: str) -> Build | None:
    repository = re.split(r"[:@]", image.partition("/")[2], maxsplit=1)[0]
    # Its wheels have code that newer GPUs compile for themselves.
    if "tensorflow" in repository:
        return None
    if is_of_aws(image) and repository.startswith("pytorch"):
        if (cuda := cuda_of(image)) is not None:
            return Build(f"the image {image}", cuda, is_certain=True)
        if "-cpu" in image:
            return Build(f"the image {image}", None, is_certain=True)
    cuda = cuda_in_tag(image)
    return None if cuda is None else Build(f"the tag of the image {image}", cuda, is_certain=False)


def find_mismatch(instance_type: str, build: Build | None) -> Mismatch | None:
    """Return why a build cannot use the GPUs of a type; None if it can, or is unknown."""
    gpu = gpu_of(instance_type)
    if gpu is None or build is None:
        return None
    if build.cuda is None:
        return Mismatch(
            f"{instance_type} has {gpu.name} GPUs, and {build.source} is for CPUs",
            f"take one for CUDA, {OR_CPUS}",
            build.is_certain,
        )
    needs = needed_cuda(gpu)
    if allows(gpu, build.cuda):
        return None
    shown = ".".join(map(str, gpu.capability))
    return Mismatch(
        f"{instance_type} has {gpu.name} GPUs (compute capability {shown}), which need "
        f"{needs}, and {build.source} has CUDA {'.'.join(map(str, build.cuda))}",
        f"take an image or a torch for {needs}, another instance type, {OR_CPUS}",
        build.is_certain,
    )


def allows(gpu: Gpu, cuda: Version) -> bool:
    """Return whether a version of CUDA compiles for a GPU."""
    architecture = architecture_of(gpu)
    is_new_enough = cuda >= architecture.first
    return is_new_enough and (architecture.last is None or cuda[0] <= architecture.last)


def needed_cuda(gpu: Gpu) -> str:
    """Return the versions of CUDA for a GPU, ``CUDA 12.8 or later``."""
    architecture = architecture_of(gpu)
    first = f"CUDA {'.'.join(map(str, architecture.first))}"
    return f"{first} or later" if architecture.last is None else f"{first} to {architecture.last}.x"

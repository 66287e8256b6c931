"""Compare the CUDA of an image, or of a required torch, with the GPUs of the instance types.

An image's driver is the host's, which is known only in the instance (``raysm.instance.gpus``).
"""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raysm.core.client.checks import parse_requirement
from raysm.core.client.images import cuda_in_tag, cuda_of, is_of_aws
from raysm.core.client.source.lock import wheel_requirement
from raysm.core.protocol.instance_types import Gpu, gpu_of
from raysm.core.protocol.packages import name_of
from raysm.core.request import Cluster
from raysm.errors import InvalidRequest

if TYPE_CHECKING:
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
ON_INSTANCES = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


@dataclass(frozen=True, slots=True)
class Build:
    """The CUDA that a job's torch would have."""

    source: str
    """Where it is from: the image, or a requirement."""
    cuda: Version | None
    """None if it computes on CPUs only."""
    is_certain: bool
    """False if only the tag of a user's own image says so."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    problem: str
    remedy: str
    is_certain: bool


def architecture_of(gpu: Gpu) -> Architecture:
    return [each for each in ARCHITECTURES if each.capability <= gpu.capability][-1]


def check_cuda(
    cluster: Cluster, image: str, requirements: Iterable[str], wheels: Iterable[Path] = ()
) -> None:
    """Refuse an image, or a torch, that has no code for the GPUs of the instances.

    If only the tag of an image says so, which may be wrong, this warns.
    """
    if cluster.allow_cpu:
        return
    build = find_build(image, requirements, wheels)
    for instance_type in cluster.types:
        mismatch = find_mismatch(instance_type, build)
        if mismatch is None:
            continue
        if mismatch.is_certain:
            raise InvalidRequest(mismatch.problem, remedy=mismatch.remedy)
        _log.warning("%s; %s", mismatch.problem, mismatch.remedy)


def find_build(
    image: str, requirements: Iterable[str], wheels: Iterable[Path] = ()
) -> Build | None:
    """Return the CUDA of the torch that is required, else of the image; None if it is unknown."""
    lines = (*requirements, *(wheel_requirement(Path(wheel).name) for wheel in wheels))
    required = [
        requirement
        for requirement in map(parse_requirement, lines)
        if requirement is not None
        and requirement.specifier
        and (requirement.marker is None or requirement.marker.evaluate(ON_INSTANCES))
    ]
    named = {each.cuda: each for each in map(_build_of, required) if each is not None}
    if named:
        # A lock for several systems may have several; pip decides.
        return named.popitem()[1] if len(named) == 1 else None
    if any(name_of(requirement.name) == "torch" for requirement in required):
        # Its CUDA may be another one than the image's.
        return None
    cuda = cuda_of(image)
    if cuda is not None:
        return Build(f"the image {image}", cuda, is_certain=True)
    repository = image.partition("/")[2].partition(":")[0]
    if is_of_aws(image) and repository.startswith("pytorch") and "-cpu" in image:
        return Build(f"the image {image}", None, is_certain=True)
    cuda = cuda_in_tag(image)
    return None if cuda is None else Build(f"the tag of the image {image}", cuda, is_certain=False)


def _build_of(requirement: "Requirement") -> Build | None:
    """Return what a requirement says of CUDA: ``torch==2.8.0+cu128`` or that of its runtime."""
    name = name_of(requirement.name)
    version = str(requirement.specifier).lstrip("=")
    source = f"the requirement {name}=={version}"
    if RUNTIME.fullmatch(name) and (pinned := re.match(r"(\d+)\.(\d+)\.", version)):
        return Build(source, (int(pinned[1]), int(pinned[2])), is_certain=True)
    if name == "torch" and version.endswith("+cpu"):
        return Build(source, None, is_certain=True)
    if name == "torch" and (local := re.search(r"\+cu(\d{2})(\d)$", version)):
        return Build(source, (int(local[1]), int(local[2])), is_certain=True)
    return None


def find_mismatch(instance_type: str, build: Build | None) -> Mismatch | None:
    """Return why a build cannot use the GPUs of a type; None if it can, or is unknown."""
    gpu = gpu_of(instance_type)
    if gpu is None or build is None:
        return None
    on_cpus = "or compute on CPUs with --allow-cpu (in Python Cluster(allow_cpu=True))"
    if build.cuda is None:
        return Mismatch(
            f"{instance_type} has {gpu.name} GPUs, and {build.source} is for CPUs",
            f"take one for CUDA, {on_cpus}",
            build.is_certain,
        )
    needs = needed_cuda(gpu)
    if allows(gpu, build.cuda):
        return None
    shown = ".".join(map(str, gpu.capability))
    return Mismatch(
        f"{instance_type} has {gpu.name} GPUs (compute capability {shown}), which need "
        f"{needs}, and {build.source} has CUDA {'.'.join(map(str, build.cuda))}",
        f"take an image or a torch for {needs}, another instance type, {on_cpus}",
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

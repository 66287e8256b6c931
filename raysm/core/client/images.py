"""Container images on AWS: AWS's PyTorch images for jobs without one, and what is known of each.

``aws_images.json`` is written by ``python -m tests.aws_images`` from the tables of the SageMaker
SDK.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from raysm.core.protocol.instance_types import gpu_of
from raysm.core.request import AWS, Cluster, JobRequest, Workload
from raysm.errors import InvalidRequest, did_you_mean

MIN_PYTHON = (3, 11)
"""As in pyproject.toml: an instance with an older Python fails as soon as it starts."""

GIVE_ONE = (
    "give --image … (in Python: AWS(image=…)), "
    "an image with Python 3.11 or later in Amazon ECR of the region"
)

PYTHON_IN_TAG = re.compile(r"-py(3)(\d{1,2})(?=-|$)")
"""In tags of AWS's older repositories: ``2.5.1-cpu-py311-ubuntu22.04-sagemaker``."""

# ACCOUNT.dkr-ecr.REGION.on.aws is a registry that is reached by IPv6 too:
# https://docs.aws.amazon.com/AmazonECR/latest/userguide/ecr-requests.html
ECR_HOST = re.compile(
    r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+"
)


class Processor(StrEnum):
    CPU = "cpu"
    GPU = "gpu"
    NEURON = "neuron"
    """AWS's Trainium and Inferentia."""


ACCELERATED = dict.fromkeys(("p", "g", "gr"), Processor.GPU) | dict.fromkeys(
    ("trn", "inf"), Processor.NEURON
)
"""Instance families with accelerators, by their letters. The rest of a name follows EC2's rules
(https://docs.aws.amazon.com/ec2/latest/instancetypes/), so that no list of types is needed."""

FAMILY = re.compile(
    r"(?P<letters>[a-z]+)(?P<generation>\d+)(?P<attributes>[a-z]*)(?P<chip>-[a-z0-9]+)?"
)

FIRST_CAPABILITY_OF_CUDA_13 = (7, 5)
"""Turing (https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/)."""

CUDA_IN_TAG = re.compile(r"(?:^|-)(?:cu|cuda)(\d{2})\.?(\d)(?=$|[-.])")
"""``2.13-cu133-amzn2023-sagemaker``, ``2.8.0-cuda12.8-cudnn9-runtime``."""


def _family(instance_type: str) -> str:
    return instance_type.removeprefix("ml.").partition(".")[0]


def processor_of(instance_type: str) -> Processor:
    """Return what computes on an instance type; a CPU if the name follows no rule."""
    family = FAMILY.fullmatch(_family(instance_type))
    return Processor.CPU if family is None else ACCELERATED.get(family["letters"], Processor.CPU)


def is_arm(instance_type: str) -> bool:
    """Return whether a type needs images for aarch64: Graviton, or NVIDIA's Grace beside a GPU."""
    family = FAMILY.fullmatch(_family(instance_type))
    # The attribute g is Graviton (m7g, c7gn, g5g); the g of g5 is before the generation. GB200 is
    # Grace Blackwell.
    return family is not None and (
        "g" in family["attributes"] or (family["chip"] or "").startswith("-gb")
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AWSImage:
    """One of AWS's PyTorch images; it is the same in every region."""

    torch: str
    processor: str
    """``cpu`` or ``gpu``; an image for GPUs runs on CPUs too."""
    repository: str
    tag: str
    python: str
    cuda: str | None

    def uri(self, registry: str) -> str:
        return f"{registry}/{self.repository}:{self.tag}"

    def describe(self) -> str:
        computes = "CPUs" if self.cuda is None else f"GPUs, CUDA {self.cuda}"
        return f"AWS's PyTorch {self.torch} for {computes}, Python {self.python}"


@functools.cache
def _table() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        files("raysm.core.client").joinpath("aws_images.json").read_text("utf-8")
    )
    return content


@functools.cache
def images() -> tuple[AWSImage, ...]:
    """Return the images whose torch raysm works with, the newest first."""
    return tuple(AWSImage(**item) for item in _table()["images"])


def registry_of(region: str) -> str | None:
    """Return the registry from which jobs of a region take AWS's images; None if unknown."""
    registry: str | None = _table()["registries"].get(region)
    return registry


def has_ray(uri: str | None, wheels: Iterable[str | Path]) -> bool:
    """Return False if Ray is in none of the wheels, and the image is one of AWS's without it.

    None is the default image.
    """
    if any(Path(wheel).name.startswith("ray-") for wheel in wheels):
        return True
    registry, _, name = (uri or "").partition("/")
    return uri is not None and (
        registry not in _table()["registries"].values() or name.startswith("ray")
    )


def is_of_aws(uri: str) -> bool:
    """Return whether an image is in one of the registries of AWS's images."""
    return uri.partition("/")[0] in _table()["registries"].values()


def _image_at(uri: str) -> AWSImage | None:
    """Return the row of the table for one of AWS's images; None if there is none."""
    repository, _, tag = uri.partition("/")[2].partition(":")
    for image in images() if is_of_aws(uri) else ():
        # A tag may have more parts than the table's: 2.13-cpu-amzn2023-sagemaker-v1.
        if image.repository == repository and (tag == image.tag or tag.startswith(f"{image.tag}-")):
            return image
    return None


def python_of(uri: str) -> str | None:
    """Return the version of Python of one of AWS's images, ``3.12``; None if unknown."""
    if not is_of_aws(uri):
        return None
    if (image := _image_at(uri)) is not None:
        return image.python
    # The table lacks images whose torch is too old for raysm, but their tags name Python.
    named = PYTHON_IN_TAG.search(_tag(uri))
    return f"{named[1]}.{named[2]}" if named else None


def torch_of(uri: str) -> str | None:
    """Return the version of torch in the tag of one of AWS's PyTorch images; None if unknown."""
    repository = uri.partition("/")[2].partition(":")[0]
    named = re.match(r"\d+\.\d+(\.\d+)?(?=-)", _tag(uri))
    is_pytorch = is_of_aws(uri) and repository.startswith("pytorch")
    return named[0] if is_pytorch and named else None


def cuda_of(uri: str) -> tuple[int, int] | None:
    """Return the version of CUDA of one of AWS's images; None if it has none, or is unknown."""
    image = _image_at(uri)
    if image is not None and image.cuda is not None:
        major, minor = image.cuda.split(".")
        return int(major), int(minor)
    return cuda_in_tag(uri) if is_of_aws(uri) else None


def cuda_in_tag(uri: str) -> tuple[int, int] | None:
    """Return the version of CUDA that the tag of an image names; None if it names none."""
    named = CUDA_IN_TAG.search(_tag(uri))
    return (int(named[1]), int(named[2])) if named else None


def _tag(uri: str) -> str:
    return uri.partition("@")[0].rpartition("/")[2].partition(":")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    host: str
    """The registry, ``123456789012.dkr.ecr.eu-west-1.amazonaws.com``."""
    region: str
    account: str
    name: str


def registry_in(uri: str) -> Repository | None:
    """Return the repository of ECR in an image's URI; None if it is not in ECR."""
    host, slash, rest = uri.partition("/")
    named = ECR_HOST.fullmatch(host)
    if named is None or not slash:
        return None
    name = re.split(r"[:@]", rest, maxsplit=1)[0]
    return Repository(host=host, region=named["region"], account=named["account"], name=name)


def with_image(target: AWS, request: JobRequest, region: Callable[[], str]) -> tuple[AWS, str]:
    """Return the target with the image of the job, and a sentence about a default image.

    The sentence is empty if an image was given.
    """
    chosen = ""
    if target.image is None:
        python = target.python or request.workload.pickled_by
        image, registry = default_image(request.cluster, region(), python)
        target = replace(target, image=image.uri(registry), python=image.python)
        chosen = f"{target.image} ({image.describe()}), since no image is named"
    check_python(request.workload, target)
    return target, chosen


def default_image(cluster: Cluster, region: str, python: str | None = None) -> tuple[AWSImage, str]:
    """Return AWS's newest image for the instances of a cluster, and the region's registry."""
    registry = registry_of(region)
    if registry is None:
        # 0.9: eu-west-9, which AWS may add, is 0.89 like eu-west-1.
        if hint := did_you_mean(region, _table()["registries"], cutoff=0.9):
            raise InvalidRequest(f"raysm knows no region {region!r}{hint}")
        missing = (
            f"none of AWS's PyTorch images is known in the region {region!r} "
            f"(table of {_table()['date']})"
        )
        raise InvalidRequest(f"no image is named, and {missing}", remedy=GIVE_ONE)
    _check_types(cluster.types)
    # The image for GPUs runs on CPUs too.
    has_gpu = any(processor_of(name) is Processor.GPU for name in cluster.types)
    fitting = [
        image
        for image in images()
        if image.processor == (Processor.GPU if has_gpu else Processor.CPU)
    ]
    for image in fitting:
        if python in (None, image.python):
            return image, registry
    versions = ", ".join(sorted({image.python for image in fitting}))
    raise InvalidRequest(
        f"no image is named, and AWS's PyTorch images have Python {versions}, not {python}",
        remedy=(
            f"submit from one of these, or give AWS(image=…, python={python!r}), "
            f"an image with Python {python}"
        ),
    )


def _check_types(types: Iterable[str]) -> None:
    """Refuse instances on which AWS's images for training do not run."""
    for name in types:
        if processor_of(name) is Processor.NEURON:
            reason = f"{name} computes with AWS Neuron, for which raysm has no default image"
        elif is_arm(name):
            reason = (
                f"{name} has ARM processors, "
                "for which AWS publishes no PyTorch image for SageMaker training"
            )
        elif (gpu := gpu_of(name)) and gpu.capability < FIRST_CAPABILITY_OF_CUDA_13:
            reason = f"the GPUs of {name} are too old for the CUDA 13 of AWS's images"
        else:
            continue
        raise InvalidRequest(f"no image is named, and {reason}", remedy=GIVE_ONE)


def check_python(workload: Workload, target: AWS) -> None:
    """Refuse an image whose Python is too old or cannot read the job's pickle.

    This happens before instances are paid for.
    """
    python = target.python or python_of(target.image or "")
    if python is not None and tuple(map(int, python.split("."))) < MIN_PYTHON:
        raise InvalidRequest(
            f"the image {target.image} has Python {python}, and raysm needs 3.11 or later",
            remedy="take a newer image, or none, which is AWS's newest",
        )
    pickled_by = workload.pickled_by
    # If the image's Python is unknown here, the instance itself refuses what it cannot read.
    if pickled_by is None or python in (None, pickled_by):
        return
    raise InvalidRequest(
        f"{workload.title} is pickled by this Python {pickled_by}, "
        f"and the image {target.image} has Python {python}, which may read it wrongly",
        remedy=(
            f"submit from Python {python}, take an image with Python {pickled_by}, "
            "or send the code as a script"
        ),
    )

"""Which image a job on AWS takes where none is named, and whether a pickle can be read in the one that it takes.

What flows in are the target, the request and the region, what flows out is the target with its image, and a sentence
that says what was taken; or the refusal, before anything is sent.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from raysm.client.images.aws_table import AWSImage, images, python_of, registry_of, table_date
from raysm.client.images.instance_types import Processor, has_cuda_13, is_arm, processor_of
from raysm.errors import InvalidRequest
from raysm.request import AWS, Cluster, JobRequest, Workload

__all__ = ["check_python", "default_image", "with_image"]

LEAST_PYTHON = (3, 11)
"""Of pyproject.toml: an instance with an older one ends as soon as it starts."""

NAME_ONE = (
    "give AWS(image=…), the URI of an image with Python 3.11 or later in Amazon ECR of the region "
    "(raysm image build --push makes one)"
)


def with_image(target: AWS, request: JobRequest, region: Callable[[], str]) -> tuple[AWS, str]:
    """Return the target with the image that the job runs in, and what was taken, in words; nothing where it was named.

    Args:
        target: As the user gave it.
        request: The job.
        region: Returns the region; asked only where no image is named.

    Raises:
        InvalidRequest: AWS has no image for these instances there, or the image's Python cannot read the job's pickle.
    """
    chosen = ""
    if target.image is None:
        where = region()
        python = target.python or request.workload.pickled_by
        image, registry = default_image(request.cluster, where, python)
        target = replace(target, image=image.uri(registry), python=image.python)
        chosen = f"{target.image} ({image.describe()}), since no image is named"
    check_python(request.workload, target)
    return target, chosen


def default_image(cluster: Cluster, region: str, python: str | None = None) -> tuple[AWSImage, str]:
    """Return AWS's newest image for the instances of a cluster, with the region's registry.

    Args:
        cluster: The instances; one image for all, as the API has it.
        region: Where they are.
        python: Version that it has to have; None is any.

    Raises:
        InvalidRequest: There is none.
    """
    registry = registry_of(region)
    if registry is None:
        raise InvalidRequest(
            f"no image is named, and none of AWS's PyTorch images is known in the region {region!r} "
            f"(table of {table_date()}): {NAME_ONE}"
        )
    types = cluster.types
    _check_types(types)
    # All groups, and whichever type is chosen, run one image, and the one for GPUs runs on CPUs too.
    processor = Processor.GPU if any(processor_of(name) is Processor.GPU for name in types) else Processor.CPU
    fitting = [image for image in images() if image.processor == processor]
    # Of equal merit else: a pickle that the newest cannot read decides for an older one.
    having = [image for image in fitting if python in (None, image.python)]
    if not having:
        versions = ", ".join(sorted({image.python for image in fitting}))
        raise InvalidRequest(
            f"no image is named, and AWS's PyTorch images have Python {versions}, not {python}: submit from one of "
            f"these, or make an image with Python {python}: raysm image build --base python:{python}-slim --push, then "
            f"AWS(image=…, python={python!r})"
        )
    return having[0], registry


def _check_types(types: Iterable[str]) -> None:
    """Refuse instances on which AWS's images for training do not run."""
    for name in types:
        if processor_of(name) is Processor.NEURON:
            lacks = f"{name} computes with AWS Neuron, for which raysm has no default image"
        elif is_arm(name):
            lacks = f"{name} has ARM processors, for which AWS publishes no PyTorch image for SageMaker training"
        elif processor_of(name) is Processor.GPU and not has_cuda_13(name):
            lacks = f"the GPUs of {name} are too old for the CUDA 13 of AWS's images"
        else:
            continue
        raise InvalidRequest(f"no image is named, and {lacks}: {NAME_ONE}")


def check_python(workload: Workload, target: AWS) -> None:
    """Refuse a Python that is too old, and a pickle that it cannot read: before a minute of an instance is paid for.

    Raises:
        InvalidRequest: The image is known to have a Python older than raysm's least, or another than what pickled.
    """
    python = target.python or python_of(target.image or "")
    # As numbers: as a text, 3.9 comes behind 3.11.
    if python is not None and tuple(map(int, python.split("."))) < LEAST_PYTHON:
        raise InvalidRequest(
            f"the image {target.image} has Python {python}, and raysm needs 3.11 or later: take a newer one, or none, "
            "which is AWS's newest"
        )
    pickled_by = workload.pickled_by
    # Of an image whose Python nobody knows here, the instance itself refuses what it cannot read.
    if pickled_by is None or python in (None, pickled_by):
        return
    raise InvalidRequest(
        f"{workload.title} is pickled by this Python {pickled_by}, and the image {target.image} has Python {python}, "
        f"which may read it wrongly: submit from Python {python}, or take an image with Python {pickled_by} "
        f"(raysm image build --base python:{pickled_by}-slim --push makes one), or send the code as a script"
    )

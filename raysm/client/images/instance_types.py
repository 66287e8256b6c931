"""What an instance type says of its processors by its name alone: which images can run on it.

What flows in is a name as SageMaker has it, ``ml.g5.xlarge``; what flows out is what computes there. Names, not a list:
AWS adds types every few weeks, and names them by rules (https://docs.aws.amazon.com/ec2/latest/instancetypes/).
"""

import re
from enum import StrEnum

__all__ = ["Processor", "has_cuda_13", "is_arm", "processor_of"]


class Processor(StrEnum):
    """What computes."""

    CPU = "cpu"
    GPU = "gpu"
    """Of NVIDIA."""
    NEURON = "neuron"
    """AWS's own Trainium and Inferentia."""


ACCELERATED = {
    "p": Processor.GPU,
    "g": Processor.GPU,
    "gr": Processor.GPU,
    "trn": Processor.NEURON,
    "inf": Processor.NEURON,
}
"""The letters of families whose work is not done by their CPUs."""

FAMILY = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)(?P<attributes>[a-z]*)(?P<chip>-[a-z0-9]+)?")

BEFORE_CUDA_13 = frozenset({"p2", "p3", "p3dn", "g3", "g3s"})
"""Kepler, Maxwell and Volta: CUDA 13 runs on nothing older than Turing
(https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/)."""


def processor_of(instance_type: str) -> Processor:
    """Return what computes on a type; of a name that follows no rule, a CPU."""
    family = FAMILY.fullmatch(_family(instance_type))
    return Processor.CPU if family is None else ACCELERATED.get(family["letters"], Processor.CPU)


def is_arm(instance_type: str) -> bool:
    """Return whether a type needs images for aarch64: Graviton, or NVIDIA's Grace beside a GPU."""
    family = FAMILY.fullmatch(_family(instance_type))
    if family is None:
        return False
    # The attribute g is Graviton (m7g, c7gn, g5g); the g of g5 stands before the generation. GB200 is Grace Blackwell.
    return "g" in family["attributes"] or (family["chip"] or "").startswith("-gb")


def has_cuda_13(instance_type: str) -> bool:
    """Return whether a type's GPUs are new enough for CUDA 13."""
    return processor_of(instance_type) is Processor.GPU and _family(instance_type) not in BEFORE_CUDA_13


def _family(instance_type: str) -> str:
    # The rules are EC2's, whose types have no ml. before them.
    return instance_type.removeprefix("ml.").partition(".")[0]

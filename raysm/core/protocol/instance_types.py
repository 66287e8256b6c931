"""GPUs, Elastic Fabric Adapters (EFA) and local disks of instance types, by EC2's tables.

They are in https://docs.aws.amazon.com/ec2/latest/instancetypes/. A type that is not in these
tables counts as one without GPUs and without EFA; its disks are unknown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

TYPE = re.compile(r"ml\.([a-z]+\d+[a-z0-9-]*)\.(.+)")
ONE = dict.fromkeys(("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"), 1)
G = {**ONE, "12xlarge": 4, "24xlarge": 4, "48xlarge": 8}

GPUS: Mapping[str, Mapping[str, int]] = {
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "p6e-gb200": {"36xlarge": 4},
    "g4dn": {**ONE, "12xlarge": 4},
    "g5": G,
    "g6": G,
    "g6e": G,
}


def gpu_count(instance_type: str) -> int:
    form = TYPE.fullmatch(instance_type)
    return 0 if form is None else GPUS.get(form[1], {}).get(form[2], 0)


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    """CUDA's compute capability (https://developer.nvidia.com/cuda-gpus)."""


_V100 = Gpu("V100", (7, 0))
_A100 = Gpu("A100", (8, 0))
_H200 = Gpu("H200", (9, 0))
_L4 = Gpu("L4", (8, 9))
_M60 = Gpu("M60", (5, 2))

GPU_MODELS: Mapping[str, Gpu] = {
    "p2": Gpu("K80", (3, 7)),
    "p3": _V100,
    "p3dn": _V100,
    "p4d": _A100,
    "p4de": _A100,
    "p5": Gpu("H100", (9, 0)),
    "p5e": _H200,
    "p5en": _H200,
    "p6-b200": Gpu("B200", (10, 0)),
    "p6-b300": Gpu("B300", (10, 3)),
    "p6e-gb200": Gpu("GB200", (10, 0)),
    "g3": _M60,
    "g3s": _M60,
    "g4dn": Gpu("T4", (7, 5)),
    "g5": Gpu("A10G", (8, 6)),
    "g6": _L4,
    "gr6": _L4,
    "g6e": Gpu("L40S", (8, 9)),
    "g7": Gpu("RTX PRO 4500", (12, 0)),
    "g7e": Gpu("RTX PRO 6000", (12, 0)),
}


OR_CPUS = "or compute on CPUs with --allow-cpu (in Python Cluster(allow_cpu=True))"
"""The last remedy of each message about GPUs that a job cannot use."""


def gpu_of(instance_type: str) -> Gpu | None:
    """Return the model of a type's GPUs; None if it has none, or is unknown."""
    form = TYPE.fullmatch(instance_type)
    return None if form is None else GPU_MODELS.get(form[1])


_LARGE_G = frozenset(("8xlarge", "12xlarge", "16xlarge", "24xlarge", "48xlarge"))

EFA: Mapping[str, frozenset[str]] = {
    "p3dn": frozenset({"24xlarge"}),
    "p4d": frozenset({"24xlarge"}),
    "p4de": frozenset({"24xlarge"}),
    "p5": frozenset({"4xlarge", "48xlarge"}),
    "p5e": frozenset({"48xlarge"}),
    "p5en": frozenset({"48xlarge"}),
    "p6-b200": frozenset({"48xlarge"}),
    "p6-b300": frozenset({"48xlarge"}),
    "g4dn": frozenset({"8xlarge", "12xlarge", "16xlarge"}),
    "g5": _LARGE_G,
    "g6": _LARGE_G,
    "g6e": _LARGE_G,
    "g7": _LARGE_G - {"16xlarge"},
    "g7e": _LARGE_G - {"16xlarge"},
}
"""Sizes of types with GPUs for which EC2's DescribeInstanceTypes says that they support EFA."""


def supports_efa(instance_type: str) -> bool:
    form = TYPE.fullmatch(instance_type)
    return form is not None and form[2] in EFA.get(form[1], ())


# EC2 names types with disks by a d after the generation (m5d, g4dn, p4de); these have disks without
# it.
WITH_DISKS = frozenset(
    "g5 g6 g6e g7e gr6 i3 i3en i4i p5 p5e p5en p6-b200 p6-b300 p6e-gb200 trn1 trn1n trn2".split()
)
WITHOUT_DISKS = frozenset("g3 g3s g5g inf1 inf2 p2 p3".split())
NAMED_BY_D = frozenset("cmrtx")
"""Letters of the families that have disks only if their name has the d."""

_G4DN = {
    "xlarge": 125,
    "2xlarge": 225,
    "4xlarge": 225,
    "8xlarge": 900,
    "12xlarge": 900,
    "16xlarge": 900,
}
# In AWS's table the 16xlarge has half of the 12xlarge's.
_G5 = {
    "xlarge": 250,
    "2xlarge": 450,
    "4xlarge": 600,
    "8xlarge": 900,
    "12xlarge": 3800,
    "16xlarge": 1900,
}

GB: Mapping[str, Mapping[str, int]] = {
    "g4dn": _G4DN,
    "g5": {**_G5, "24xlarge": 3800, "48xlarge": 7600},
    "p4d": {"24xlarge": 8000},
    "p4de": {"24xlarge": 8000},
}
"""Size of all disks of one instance, for the most common types."""


def has_local_storage(instance_type: str) -> bool | None:
    """Return whether an instance has disks of its own in place of a volume; None: unknown."""
    form = TYPE.fullmatch(instance_type)
    if form is None:
        return False
    letters, _, behind = re.split(r"(\d+)", form[1], maxsplit=1)
    if "d" in behind or form[1] in WITH_DISKS:
        return True
    return False if letters in NAMED_BY_D or form[1] in WITHOUT_DISKS else None


def local_storage_gb(instance_type: str) -> int | None:
    form = TYPE.fullmatch(instance_type)
    return None if form is None else GB.get(form[1], {}).get(form[2])

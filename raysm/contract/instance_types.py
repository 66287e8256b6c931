"""GPUs and local disks of instance types, by EC2's tables; unknown types have neither."""

import re
from collections.abc import Mapping

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
    "g4dn": {**ONE, "12xlarge": 4},
    "g5": G,
    "g6": G,
    "g6e": G,
}
"""By family and size."""


def gpu_count(instance_type: str) -> int:
    """Return the GPUs of one instance; 0 where it has none, or where it is not known here."""
    form = TYPE.fullmatch(instance_type)
    return 0 if form is None else GPUS.get(form[1], {}).get(form[2], 0)


FAMILY = re.compile(r"ml\.([a-z]+\d+[a-z0-9-]*)\.(.+)")

# By EC2's rule of naming a d behind the generation says it (m5d, g4dn, p4de); these have disks without saying so.
WITH_DISKS = ("g5", "g6", "g6e", "gr6", "i3", "i3en", "i4i", "p5", "p5e", "p5en", "trn1", "trn1n", "trn2")

GB: Mapping[str, Mapping[str, int]] = {
    "g4dn": {
        "xlarge": 125,
        "2xlarge": 225,
        "4xlarge": 225,
        "8xlarge": 900,
        "12xlarge": 900,
        "16xlarge": 900,
    },
    "g5": {
        "xlarge": 250,
        "2xlarge": 450,
        "4xlarge": 600,
        "8xlarge": 900,
        "12xlarge": 3800,
        # No slip: in the table this type has half of the 12xlarge's.
        "16xlarge": 1900,
        "24xlarge": 3800,
        "48xlarge": 7600,
    },
    "p4d": {"24xlarge": 8000},
    "p4de": {"24xlarge": 8000},
}
"""Of the types that people take most: all disks of one instance together. Of others nothing is said."""


def has_local_storage(instance_type: str) -> bool:
    """Whether instances of this type have disks of their own in place of a volume."""
    form = FAMILY.fullmatch(instance_type)
    if form is None:
        return False
    _, _, behind = re.split(r"(\d+)", form[1], maxsplit=1)
    return "d" in behind or form[1] in WITH_DISKS


def local_storage_gb(instance_type: str) -> int | None:
    """Return the size of all disks of an instance, in GB; None where it has none, or where it is not known here."""
    form = FAMILY.fullmatch(instance_type)
    return None if form is None else GB.get(form[1], {}).get(form[2])

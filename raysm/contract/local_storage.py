"""Which instance types bring disks of their own, and how large: of these the volume that a request names is not made.

What flows in is an instance type, what flows out is what EC2's public table of instance store volumes says of it
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-store-volumes.html, seen 2026-11-22).
"""

import re
from collections.abc import Mapping

__all__ = ["has_local_storage", "local_storage_gb"]

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

"""How many GPUs an instance has: a type flows in, a number flows out.

By EC2's names of its types, https://aws.amazon.com/ec2/instance-types/; of families that are not here nothing is said.
"""

import re
from collections.abc import Mapping

__all__ = ["gpu_count"]

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

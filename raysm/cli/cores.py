"""What an instance type computes with, as its name tells it."""

import re

__all__ = ["vcpus_of"]

SIZE = re.compile(r"(\d*)xlarge")
"""A size that says how often four vCPUs an instance has."""

ODD_SIZES = {"ml.c4.8xlarge": 36}
"""Types whose name says another number than they have."""


def vcpus_of(instance_type: str) -> int:
    """Return the vCPUs of a type: AWS names sizes by them, ``xlarge`` four, ``9xlarge`` 36, anything smaller two."""
    size = SIZE.fullmatch(instance_type.rpartition(".")[2])
    return ODD_SIZES.get(instance_type, 4 * int(size[1] or 1) if size else 2)

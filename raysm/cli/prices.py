"""What an instance type has and costs, for estimates: its cores by its name, and a small table of prices."""

import re

__all__ = ["PRICES", "SOURCE", "has_gpus", "vcpus_of"]

SOURCE = "on-demand in us-east-1 as public tools quoted it in 2024 and 2025; --price-per-hour says better"
"""Where the prices are from."""

PRICES = {
    "ml.m5.large": 0.115,
    "ml.m5.xlarge": 0.23,
    "ml.m5.2xlarge": 0.461,
    "ml.m5.4xlarge": 0.922,
    "ml.m5.12xlarge": 2.765,
    "ml.m5.24xlarge": 5.53,
    "ml.c5.xlarge": 0.204,
    "ml.c5.2xlarge": 0.408,
    "ml.c5.4xlarge": 0.816,
    "ml.c5.9xlarge": 1.836,
    "ml.c5.18xlarge": 3.672,
    "ml.g4dn.xlarge": 0.736,
    "ml.g5.xlarge": 1.408,
}
"""USD for an hour of one instance, by type."""

SIZE = re.compile(r"(\d*)xlarge")
"""A size that says how often four vCPUs an instance has."""

ODD_SIZES = {"ml.c4.8xlarge": 36}
"""Types whose name says another number than they have."""


def vcpus_of(instance_type: str) -> int:
    """Return the vCPUs of a type: AWS names sizes by them, ``xlarge`` four, ``9xlarge`` 36, anything smaller two."""
    size = SIZE.fullmatch(instance_type.rpartition(".")[2])
    return ODD_SIZES.get(instance_type, 4 * int(size[1] or 1) if size else 2)


def has_gpus(instance_type: str) -> bool:
    """Return whether a type has NVIDIA GPUs: those of the families g and p."""
    return instance_type.startswith(("ml.g", "ml.p"))

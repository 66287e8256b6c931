"""A Ray cluster, one workload and one result inside a SageMaker job.

The public names are imported on first use: ``import raysm`` alone pulls in neither ray nor torch nor boto3.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysm.errors import RaysmError
    from raysm.request import Cluster, Input, InstanceGroup, JobRequest, Ports, Script, Similarity
    from raysm.workloads.blocks import RowBlock, map_blocks, row_blocks

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Input",
    "InstanceGroup",
    "JobRequest",
    "Ports",
    "RaysmError",
    "RowBlock",
    "Script",
    "Similarity",
    "map_blocks",
    "row_blocks",
]

_HOMES = {
    "RaysmError": "raysm.errors",
    "RowBlock": "raysm.workloads.blocks",
    "map_blocks": "raysm.workloads.blocks",
    "row_blocks": "raysm.workloads.blocks",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'raysm' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "raysm.request")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

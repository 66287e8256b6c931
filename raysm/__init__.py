"""A Ray cluster, one workload and one result inside a SageMaker job.

The public names are imported on first use: ``import raysm`` alone pulls in neither ray nor torch nor boto3.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysm.client.data_parallel import DataParallel
    from raysm.client.function import Function, remote
    from raysm.client.job import Job, attach
    from raysm.client.result import Result
    from raysm.client.submit import submit
    from raysm.errors import JobFailed, JobStopped, RaysmError
    from raysm.request import (
        AWS,
        Cluster,
        Input,
        InstanceGroup,
        JobRequest,
        Limits,
        Local,
        MetricDefinition,
        Ports,
        Script,
        Security,
        Similarity,
        TorchScript,
    )
    from raysm.workloads.blocks import RowBlock, file_blocks, map_blocks, row_blocks

__version__ = "0.1.0"

__all__ = [
    "AWS",
    "Cluster",
    "DataParallel",
    "Function",
    "Input",
    "InstanceGroup",
    "Job",
    "JobFailed",
    "JobRequest",
    "JobStopped",
    "Limits",
    "Local",
    "MetricDefinition",
    "Ports",
    "RaysmError",
    "Result",
    "RowBlock",
    "Script",
    "Security",
    "Similarity",
    "TorchScript",
    "attach",
    "file_blocks",
    "map_blocks",
    "remote",
    "row_blocks",
    "submit",
]

_HOMES = {
    "raysm.client.data_parallel": ("DataParallel",),
    "raysm.client.function": ("Function", "remote"),
    "raysm.client.job": ("Job", "attach"),
    "raysm.client.result": ("Result",),
    "raysm.client.submit": ("submit",),
    "raysm.errors": ("JobFailed", "JobStopped", "RaysmError"),
    "raysm.workloads.blocks": ("RowBlock", "file_blocks", "map_blocks", "row_blocks"),
}
"""Where each public name lives; the others live in ``raysm.request``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'raysm' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "raysm.request")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

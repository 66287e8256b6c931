"""A Ray cluster, one workload and one result inside a SageMaker job.

The public names are imported on first use: ``import raysm`` alone pulls in neither ray nor torch nor boto3.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # "as": type checkers take only that for a name that others may use, and these are not in __all__.
    from raysm import client as client
    from raysm import sdk as sdk
    from raysm import testing as testing
    from raysm import training as training
    from raysm.client.experiments.experiment import Experiment
    from raysm.client.job.handle import Job, attach
    from raysm.client.results.batch import Batch, BatchResult
    from raysm.client.results.result import Result
    from raysm.client.results.similarity import SimilarityResult
    from raysm.client.session.calls import as_completed, gather, progress
    from raysm.client.session.handle import Session
    from raysm.client.settings import load_options
    from raysm.client.source.function import DataParallel, Function
    from raysm.client.source.remote import remote
    from raysm.client.submit import submit
    from raysm.client.sweep import Sweep, SweepResult
    from raysm.client.tuning import Tuning, attach_tuning, tune
    from raysm.errors import JobFailed, JobStopped, RaysmError
    from raysm.grid.batch_job.controller_job import ControllerJob
    from raysm.grid.row import GridRow
    from raysm.grid.rows.databases import Query
    from raysm.grid.shards import shards
    from raysm.grid.task import Rules
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
    from raysm.request.space import choice, lograndint, loguniform, qloguniform, quniform, randint, uniform
    from raysm.request.sweep import Asha, Median, Pbt
    from raysm.views.experiments.table import Jobs, jobs
    from raysm.views.grid.grid import Grid
    from raysm.views.grid.handle import GridHandle, attach_grid
    from raysm.workloads.blocks import PlacedBlock, file_blocks, map_blocks
    from raysm.workloads.report import report, restored
    from raysm.workloads.row_blocks import RowBlock, row_blocks

__version__ = "0.1.0"

__all__ = [
    "AWS",
    "Asha",
    "Batch",
    "BatchResult",
    "Cluster",
    "ControllerJob",
    "DataParallel",
    "Experiment",
    "Function",
    "Grid",
    "GridHandle",
    "GridRow",
    "Input",
    "InstanceGroup",
    "Job",
    "JobFailed",
    "JobRequest",
    "JobStopped",
    "Jobs",
    "Limits",
    "Local",
    "Median",
    "MetricDefinition",
    "Pbt",
    "PlacedBlock",
    "Ports",
    "Query",
    "RaysmError",
    "Result",
    "RowBlock",
    "Rules",
    "Script",
    "Security",
    "Session",
    "Similarity",
    "SimilarityResult",
    "Sweep",
    "SweepResult",
    "TorchScript",
    "Tuning",
    "as_completed",
    "attach",
    "attach_grid",
    "attach_tuning",
    "choice",
    "file_blocks",
    "gather",
    "jobs",
    "load_options",
    "lograndint",
    "loguniform",
    "map_blocks",
    "progress",
    "qloguniform",
    "quniform",
    "randint",
    "remote",
    "report",
    "restored",
    "row_blocks",
    "shards",
    "submit",
    "tune",
    "uniform",
]

# Not in __all__: ``from raysm import *`` would import torch with raysm.training.
_MODULES = ("client", "errors", "sdk", "testing", "training")
"""Parts that are named through this one, ``raysm.training.report``: imported on first use too."""

# Not in __all__ either: they are for Ray, which looks for them by ``dir`` where an address begins with raysm://.
_RAY_ADDRESS = ("ClientBuilder", "get_job_submission_client_cluster_info")

# Nor these: IPython asks for them by name, ``%load_ext raysm``.
_IPYTHON = ("load_ipython_extension", "unload_ipython_extension")

_HOMES = {
    "raysm.client.results.batch": ("Batch", "BatchResult"),
    "raysm.client.experiments.experiment": ("Experiment",),
    "raysm.client.source.function": ("DataParallel", "Function"),
    "raysm.client.job.handle": ("Job", "attach"),
    "raysm.client.settings": ("load_options",),
    "raysm.client.tunnel.dashboard": _RAY_ADDRESS,
    "raysm.client.results.result": ("Result",),
    "raysm.client.source.remote": ("remote",),
    "raysm.client.session.calls": ("as_completed", "gather", "progress"),
    "raysm.client.session.handle": ("Session",),
    "raysm.client.submit": ("submit",),
    "raysm.client.results.similarity": ("SimilarityResult",),
    "raysm.client.sweep": ("Sweep", "SweepResult"),
    "raysm.client.tuning": ("Tuning", "attach_tuning", "tune"),
    "raysm.errors": ("JobFailed", "JobStopped", "RaysmError"),
    "raysm.grid.batch_job.controller_job": ("ControllerJob",),
    "raysm.grid.row": ("GridRow",),
    "raysm.grid.rows.databases": ("Query",),
    "raysm.grid.task": ("Rules",),
    "raysm.grid.shards": ("shards",),
    "raysm.views.experiments.table": ("Jobs", "jobs"),
    "raysm.views.grid.grid": ("Grid",),
    "raysm.views.grid.handle": ("GridHandle", "attach_grid"),
    "raysm.views.magics.magics": _IPYTHON,
    "raysm.workloads.blocks": ("PlacedBlock", "file_blocks", "map_blocks"),
    "raysm.workloads.row_blocks": ("RowBlock", "row_blocks"),
    "raysm.request.sweep": ("Asha", "Median", "Pbt"),
    "raysm.request.space": ("choice", "lograndint", "loguniform", "qloguniform", "quniform", "randint", "uniform"),
    "raysm.workloads.report": ("report", "restored"),
}
"""Where each public name lives; the others live in ``raysm.request``."""


_ZIP = os.path.join(os.path.dirname(__file__), "raysm.zip")
if os.path.exists(_ZIP):
    # An instance has unpacked what it runs; a job that sends jobs itself imports the rest from the zip.
    __path__.append(os.path.join(_ZIP, "raysm"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"raysm.{name}")
    if name not in __all__ and name not in (*_RAY_ADDRESS, *_IPYTHON):
        raise AttributeError(f"module 'raysm' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "raysm.request")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    # Else a notebook completes raysm. with Any, TYPE_CHECKING and importlib.
    return sorted(["__version__", *__all__, *_MODULES, *_RAY_ADDRESS])

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
    from raysm.core.client.job.handle import Job, attach
    from raysm.core.client.results.result import Result
    from raysm.core.client.settings import load_options
    from raysm.core.client.source.function import DataParallel, Function
    from raysm.core.client.source.remote import remote
    from raysm.core.client.submit import submit
    from raysm.core.request import (
        AWS,
        Cluster,
        Input,
        InstanceGroup,
        JobRequest,
        Limits,
        Local,
        MetricDefinition,
        Ports,
        Security,
    )
    from raysm.errors import JobFailed, JobStopped, RaysmError
    from raysm.features.batch.result import Batch, BatchResult
    from raysm.features.experiments.experiment import Experiment
    from raysm.features.experiments.table import Jobs, jobs
    from raysm.features.grid.batch_job.controller_job import ControllerJob
    from raysm.features.grid.row import GridRow
    from raysm.features.grid.rows.databases import Query
    from raysm.features.grid.shards import shards
    from raysm.features.grid.task import Rules
    from raysm.features.grid.views.grid import Grid
    from raysm.features.grid.views.handle import GridHandle, attach_grid
    from raysm.features.script.request import Script, TorchScript
    from raysm.features.session.client.calls import as_completed, gather, progress
    from raysm.features.session.client.handle import Session
    from raysm.features.similarity.request import Similarity
    from raysm.features.similarity.result import SimilarityResult
    from raysm.features.sweep.client import Sweep, SweepResult
    from raysm.features.sweep.request import Asha, Median, Pbt
    from raysm.features.sweep.space import choice, lograndint, loguniform, qloguniform, quniform, randint, uniform
    from raysm.features.sweep.tuning import Tuning, attach_tuning, tune
    from raysm.instance.work.blocks import PlacedBlock, file_blocks, map_blocks
    from raysm.instance.work.report import report, restored
    from raysm.instance.work.row_blocks import RowBlock, row_blocks

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
    "raysm.features.batch.result": ("Batch", "BatchResult"),
    "raysm.features.experiments.experiment": ("Experiment",),
    "raysm.core.client.source.function": ("DataParallel", "Function"),
    "raysm.core.client.job.handle": ("Job", "attach"),
    "raysm.core.client.settings": ("load_options",),
    "raysm.features.dashboard.tunnel.dashboard": _RAY_ADDRESS,
    "raysm.core.client.results.result": ("Result",),
    "raysm.core.client.source.remote": ("remote",),
    "raysm.features.session.client.calls": ("as_completed", "gather", "progress"),
    "raysm.features.session.client.handle": ("Session",),
    "raysm.core.client.submit": ("submit",),
    "raysm.features.similarity.result": ("SimilarityResult",),
    "raysm.features.sweep.client": ("Sweep", "SweepResult"),
    "raysm.features.sweep.tuning": ("Tuning", "attach_tuning", "tune"),
    "raysm.errors": ("JobFailed", "JobStopped", "RaysmError"),
    "raysm.features.grid.batch_job.controller_job": ("ControllerJob",),
    "raysm.features.grid.row": ("GridRow",),
    "raysm.features.grid.rows.databases": ("Query",),
    "raysm.features.grid.task": ("Rules",),
    "raysm.features.grid.shards": ("shards",),
    "raysm.features.experiments.table": ("Jobs", "jobs"),
    "raysm.features.grid.views.grid": ("Grid",),
    "raysm.features.grid.views.handle": ("GridHandle", "attach_grid"),
    "raysm.features.session.notebook.magics": _IPYTHON,
    "raysm.instance.work.blocks": ("PlacedBlock", "file_blocks", "map_blocks"),
    "raysm.instance.work.row_blocks": ("RowBlock", "row_blocks"),
    "raysm.features.sweep.request": ("Asha", "Median", "Pbt"),
    "raysm.features.sweep.space": (
        "choice",
        "lograndint",
        "loguniform",
        "qloguniform",
        "quniform",
        "randint",
        "uniform",
    ),
    "raysm.instance.work.report": ("report", "restored"),
    "raysm.features.script.request": ("Script", "TorchScript"),
    "raysm.features.similarity.request": ("Similarity",),
}
"""Where each public name lives; the others live in ``raysm.core.request``."""


_ZIP = os.path.join(os.path.dirname(__file__), "raysm.zip")
if os.path.exists(_ZIP):
    # An instance has unpacked what it runs; a job that sends jobs itself imports the rest from the zip.
    __path__.append(os.path.join(_ZIP, "raysm"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"raysm.{name}")
    if name not in __all__ and name not in (*_RAY_ADDRESS, *_IPYTHON):
        raise AttributeError(f"module 'raysm' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "raysm.core.request")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    # Else a notebook completes raysm. with Any, TYPE_CHECKING and importlib.
    return sorted(["__version__", *__all__, *_MODULES, *_RAY_ADDRESS])

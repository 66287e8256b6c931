"""A Ray cluster, one workload and one result inside a SageMaker job.

The public names are imported on first use: ``import raysm`` alone pulls in neither ray nor torch
nor boto3.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # "as": type checkers take only that for a name that others may use, and these are not in
    # __all__.
    from raysm import client as client
    from raysm import sdk as sdk
    from raysm import testing as testing
    from raysm import training as training
    from raysm.core.client.job.experiment import Experiment
    from raysm.core.client.job.handle import Job, attach
    from raysm.core.client.results.result import Result
    from raysm.core.client.settings import load_options
    from raysm.core.client.submit import submit
    from raysm.core.request import (
        AWS,
        Alternative,
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
    from raysm.features.experiments.table import Jobs, jobs
    from raysm.features.grid.batch_job.controller_job import ControllerJob
    from raysm.features.grid.client.grid import Grid
    from raysm.features.grid.client.handle import GridHandle, attach_grid
    from raysm.features.grid.row_view import GridRow
    from raysm.features.grid.rules import Rules
    from raysm.features.grid.shards import shards
    from raysm.features.grid.sources.databases import Query
    from raysm.features.script.client import Function, remote
    from raysm.features.script.request import Script
    from raysm.features.session.client.handle import Session
    from raysm.features.session.client.many_calls import as_completed, gather, progress
    from raysm.features.similarity.request import Similarity
    from raysm.features.similarity.result import SimilarityResult
    from raysm.features.sweep.client import Sweep, SweepResult
    from raysm.features.sweep.request import Asha, Median, Pbt
    from raysm.features.sweep.space import (
        choice,
        lograndint,
        loguniform,
        qloguniform,
        quniform,
        randint,
        uniform,
    )
    from raysm.features.sweep.tuning import Tuning, attach_tuning, tune
    from raysm.features.training.client import DataParallel
    from raysm.features.training.request import TorchScript
    from raysm.instance.work.blocks import PlacedBlock, file_blocks, map_blocks
    from raysm.instance.work.report import report, restored
    from raysm.instance.work.row_blocks import RowBlock, row_blocks

    # When the program runs, __getattr__ has it: features may be missing, or be added.
    __all__ = [
        "AWS",
        "Alternative",
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

__version__ = "0.1.0"

_CORE = {
    "raysm.core.client.job.handle": ("Job", "attach"),
    "raysm.core.client.results.result": ("Result",),
    "raysm.core.client.settings": ("load_options",),
    "raysm.core.client.submit": ("submit",),
    "raysm.core.request": (
        "AWS",
        "Alternative",
        "Cluster",
        "Input",
        "InstanceGroup",
        "JobRequest",
        "Limits",
        "Local",
        "MetricDefinition",
        "Ports",
        "Security",
    ),
    "raysm.errors": ("JobFailed", "JobStopped", "RaysmError"),
    "raysm.instance.work.blocks": ("PlacedBlock", "file_blocks", "map_blocks"),
    "raysm.instance.work.report": ("report", "restored"),
    "raysm.instance.work.row_blocks": ("RowBlock", "row_blocks"),
}
"""Where each public name of the core lives. Those of features are in the features' own lists:
``core.features``."""

# Not in __all__: ``from raysm import *`` would import torch with raysm.training.
_MODULES = ("client", "errors", "sdk", "testing", "training")
"""Parts that are named through this one, ``raysm.training.report``: imported on first use too."""

_ZIP = os.path.join(os.path.dirname(__file__), "raysm.zip")
if os.path.exists(_ZIP):
    # An instance has unpacked what it runs; a job that sends jobs itself imports the rest from the
    # zip.
    __path__.append(os.path.join(_ZIP, "raysm"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _module(f"raysm.{name}")
    for module, names in _CORE.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    if name == "__all__":
        return _public()
    # Python itself asks for names with underscores, and no feature has one.
    path = None if name.startswith("_") else _feature_path(name)
    if path is None:
        raise AttributeError(f"module 'raysm' has no attribute {name!r}")
    import pkgutil

    return pkgutil.resolve_name(path)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        feature = str(error.name)
        if not feature.startswith("raysm.features."):
            raise
        from raysm.errors import MissingDependency

        raise MissingDependency(
            f"{name} needs {feature}, which this raysm lacks; install all of raysm again"
        ) from error


def _feature_path(name: str) -> str | None:
    from raysm.core.features import path_of

    return path_of("names", name) or path_of("hooks", name)


def _public() -> list[str]:
    from raysm.core.features import all_paths

    return sorted([*(name for names in _CORE.values() for name in names), *all_paths("names")])


def __dir__() -> list[str]:
    from raysm.core.features import all_paths

    # Else a notebook completes raysm. with Any, TYPE_CHECKING and importlib.
    return sorted(["__version__", *_public(), *_MODULES, *all_paths("hooks")])

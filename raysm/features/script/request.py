"""Workloads that run once, on the head: a script or a command, and a function."""

from dataclasses import dataclass
from typing import ClassVar

from raysm.core.request.programs import PickledWorkload, Program
from raysm.core.request.workload import Wrapper


@dataclass(frozen=True, kw_only=True, slots=True)
class Script(Program):
    """A script or a command that runs once on the head.

    ``RAY_ADDRESS`` is that of the formed cluster. A Python script runs as ``__main__`` and joins
    the cluster by ``ray.init()``; with ``ray_init`` it has joined before it begins.

    Raises:
        InvalidRequest: The script has no name.
    """

    kind: ClassVar[str] = "script"
    runner: ClassVar[str] = "raysm.features.script.runner:ScriptRunner"
    label: ClassVar[str] = "the script"
    keeps: ClassVar[str] = (
        "what the script writes into the folder $SM_MODEL_DIR or into its working folder"
    )
    reports_metrics: ClassVar[bool] = True
    names_waiting_requests: ClassVar[bool] = True

    drop_files: bool = False
    """Do not keep the files that the script writes into its working folder. Otherwise those of the
    head, up to 1 GiB and 10,000 files, become part of the result."""

    ray_init: bool = False
    """Join the cluster before the script begins, for a script that does not call ``ray.init()``, or
    calls it with arguments that start a cluster (``num_cpus``), which are then left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledFunction(PickledWorkload):
    """A function with its arguments, pickled by cloudpickle into the payload.

    Its value is the job's result.
    """

    kind: ClassVar[str] = "function"
    runner: ClassVar[str] = "raysm.features.script.runner:FunctionRunner"
    label: ClassVar[str] = "a function"
    keeps: ClassVar[str] = "the value of the function"
    reports_metrics: ClassVar[bool] = True
    names_waiting_requests: ClassVar[bool] = True
    wrapper: ClassVar[Wrapper | None] = Wrapper("function", "raysm.Function(fn, *args, **kwargs)")
    returns_value: ClassVar[bool] = True

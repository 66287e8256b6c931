"""Workloads that run the user's own code: scripts, torchrun scripts, functions and training loops."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from raysm.core.request.options import check_counts, decides, optional
from raysm.core.request.workload import Parameters, ScriptWorkload, Workload, Wrapper, of_command_line
from raysm.errors import InvalidRequest


class Pickled:
    """A mixin for kinds with the fields ``name`` and ``python``; it comes before ``Workload`` among the bases."""

    # Empty, because a dataclass with slots can have only one base with slots.
    __slots__ = ()

    # Annotations for type checkers; the kinds declare the fields.
    name: str
    python: str

    @property
    def pickled_by(self) -> str:
        return self.python

    @property
    def title(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Program(ScriptWorkload):
    """The options of every program: a Python script, another script, or a command.

    A file whose name ends with ``.sh`` is run by bash. A file whose first line names another interpreter than Python
    (``#!/usr/bin/env perl``) is run by that. Any other file is a Python script.

    Raises:
        InvalidRequest: The script has no name, or its arguments are one text.
    """

    script: str = field(kw_only=False)
    """The script's path; with ``source_dir``, relative to that folder or to the working folder."""
    args: tuple[str, ...] = ()
    """Its arguments, verbatim: ``sys.argv[1:]``."""
    command: bool = False
    """``script`` is a command, such as ``make`` or ``./tool``, which runs with ``args`` where a script would run, and
    is searched for in the instance's ``PATH``. The folder ``source_dir`` is sent, if given."""
    source_dir: str | None = None
    """A folder that travels whole, except hidden files, caches, virtual environments and earlier results; None is the
    script with the modules and packages beside it that it imports."""
    in_state: bool = False
    """Run the script in $RAYSM_STATE, with a copy of its source: the next run with ``resume``, or after an
    interruption, finds the files that it wrote to its working folder, such as checkpoints. In ``args``, ``{state}`` is
    replaced by the state folder and ``{channel_NAME}`` by the folder of an input, also without this option."""

    def __post_init__(self) -> None:
        self.check_script(type(self).__name__)

    @property
    def parameters(self) -> Parameters:
        return of_command_line(self.args)


@dataclass(frozen=True, kw_only=True, slots=True)
class Script(Program):
    """A script or a command that runs once on the head, with ``RAY_ADDRESS`` set to the formed cluster.

    A Python script runs as ``__main__`` and joins the cluster by ``ray.init()``; with ``ray_init`` it has joined before
    it begins.

    Raises:
        InvalidRequest: The script has no name.
    """

    runner: ClassVar[str] = "raysm.features.script.runner:ScriptRunner"
    label: ClassVar[str] = "the script"
    keeps: ClassVar[str] = "what the script writes into the folder $SM_MODEL_DIR or into its working folder"
    names_waiting_requests: ClassVar[bool] = True

    drop_files: bool = False
    """Do not keep the files that the script writes into its working folder. Otherwise those of the head, up to 1 GiB
    and 10,000 files, become part of the result."""

    ray_init: bool = False
    """Join the cluster before the script begins, for a script that does not call ``ray.init()``, or calls it with
    arguments that start a cluster (``num_cpus``), which are then left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledWorkload(Pickled, Workload):
    """The options of every workload whose code travels as a pickle."""

    packages: ClassVar[tuple[str, ...]] = ("cloudpickle",)

    name: str
    """Name for messages: ``module.function``."""
    python: str
    """Version of the Python that pickled the code, ``3.11``; another version may not be able to read it."""

    # Both only describe the pickle, whose digest is compared by itself.
    arguments: Mapping[str, Any] = field(default_factory=dict, metadata=decides(result=False))
    """The arguments, as ``raysm.core.request.workload`` shows them."""
    code: str = optional("", result=False)
    """SHA-256 of the function's source; empty if it has none."""

    @property
    def parameters(self) -> Parameters:
        return self.arguments

    @property
    def code_digest(self) -> str:
        return self.code


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledFunction(PickledWorkload):
    """A function with its arguments, pickled by cloudpickle into the payload; its value is the job's result."""

    runner: ClassVar[str] = "raysm.features.script.runner:FunctionRunner"
    label: ClassVar[str] = "a function"
    keeps: ClassVar[str] = "the value of the function"
    names_waiting_requests: ClassVar[bool] = True
    wrapper: ClassVar[Wrapper | None] = Wrapper("function", "raysm.Function(fn, *args, **kwargs)")
    returns_value: ClassVar[bool] = True


Precision = Literal["fp32", "bf16"]
"""The default precision of ``training.prepare``."""

RAY_VARIABLES: Mapping[str, str] = {
    # At Ray's default of 15 every daemon would run before the training, and without root it cannot be lowered again.
    "RAY_worker_niceness": "0",
    # By default these poll several times a second, which takes half a percent of a core: the memory monitor, the load
    # report for an autoscaler, and the events of Ray itself.
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
    "SCAN_EVENT_DIR_INTERVAL_SECONDS": "10",
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "1",
}
"""Variables that keep Ray's daemons from taking CPU time from a training."""

KEEPS = "what rank 0 leaves in the folder $SM_MODEL_DIR, or in the one in which it runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchScript(Program):
    """An unmodified script for ``torchrun``: each worker runs it as ``__main__`` in a process of its own.

    Any other script or command runs in the same way, once for each worker.

    There is one worker for each GPU of the cluster; without GPUs there is one for each instance, or
    ``workers_per_instance``. A head that only coordinates, or has no GPU while others have, has no worker. The workers
    have the environment variables of torchrun. Each runs in a folder with links to the script's source and to the
    channels, by name. The files that the instance of rank 0 leaves there and in SM_MODEL_DIR become the job's result.
    The workers connect to each other at ports that the system chooses, so security groups must allow all ports between
    the instances.

    Raises:
        InvalidRequest: The script has no name, or a number is out of its range.
    """

    runner: ClassVar[str] = "raysm.features.training.cluster.launch.torch_script:TorchScriptRunner"
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar[str | None] = "train"
    preloads: ClassVar[tuple[str, ...]] = ("raysm.features.training.cluster.launch.torch_script",)
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    wants_all_cpus_at_once: ClassVar[bool] = True
    # raysm's own relay sends the output of the processes.
    log_monitor: ClassVar[bool] = False
    # The driver imports Ray, and runs no user code.
    prepares_ahead: ClassVar[bool] = True
    relays_output: ClassVar[bool] = True

    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one if the cluster has none."""
    spawns: bool = False
    """True for a script that starts the processes of its node itself (``torch.multiprocessing.spawn``): each instance
    has one worker, which sees all GPUs. RANK and WORLD_SIZE then count instances; in ``args``, ``{rank}``,
    ``{world_size}``, ``{master_addr}`` and ``{master_port}`` are replaced by the instance's values."""
    share_state: bool = optional(False, result=False)
    """Copy the files in $RAYSM_STATE of rank 0's instance to all instances before the workers start or are restarted,
    for a script in which every rank loads what rank 0 saved. Files there that rank 0 does not have are removed."""
    max_restarts: int = 0
    """Number of times that all workers are restarted after one of them failed, at least 0. Losses of instances that
    ``Cluster(on_instance_loss="continue")`` allows do not count."""

    def __post_init__(self) -> None:
        Program.__post_init__(self)  # super() would look for the class that slots=True has replaced
        check_counts("TorchScript", 1, or_none=True, workers_per_instance=self.workers_per_instance)
        check_counts("TorchScript", 0, max_restarts=self.max_restarts)
        if self.spawns and self.workers_per_instance not in (None, 1):
            raise InvalidRequest(
                "TorchScript: spawns means one worker for each instance, which starts the others itself; drop "
                f"workers_per_instance={self.workers_per_instance}, or spawns"
            )

    def workers_ahead(self, gpus: int) -> int:
        """Return 1: the torchrun agent, which starts the processes."""
        return 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainLoop(PickledWorkload):
    """A training loop with its config, pickled by cloudpickle into the payload; ``raysm.DataParallel`` makes it."""

    runner: ClassVar[str] = "raysm.features.training.cluster.launch.data_parallel:DataParallelRunner"
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    wrapper: ClassVar[Wrapper | None] = Wrapper("loop", "raysm.DataParallel(train_loop, config=…)")
    packages: ClassVar[tuple[str, ...]] = ("cloudpickle", "torch", "safetensors", "pyarrow")  # the last is Ray Train's
    extra: ClassVar[str | None] = "train"
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    # raysm's own relay sends the output of the workers.
    log_monitor: ClassVar[bool] = False

    precision: Precision = "fp32"
    """The default precision of ``training.prepare``."""
    workers: int | None = None
    """Number of workers in all, at least 1; None is ``workers_per_instance`` on every instance."""
    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one if the cluster has none."""
    max_restarts: int = 0
    """Number of times that all workers are restarted after one of them failed."""

    def __post_init__(self) -> None:
        workers = {"workers": self.workers, "workers_per_instance": self.workers_per_instance}
        check_counts("DataParallel", 1, or_none=True, **workers)
        check_counts("DataParallel", 0, max_restarts=self.max_restarts)
        if self.precision not in get_args(Precision):
            raise InvalidRequest(f"DataParallel: precision is 'fp32' or 'bf16', got {self.precision!r}")

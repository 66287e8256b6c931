"""Workloads that run the user's own code: scripts, torchrun scripts, functions and training loops."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from raysm.errors import InvalidRequest
from raysm.request.options import decides
from raysm.request.workload import Parameters, Workload, Wrapper, of_command_line


class Pickled:
    """Stands before ``Workload`` among the bases of a kind that has these two fields."""

    # Without slots of its own: a dataclass with slots takes no second base that has any.
    __slots__ = ()

    # Said for type checkers: the fields themselves are the dataclass's, in its own order.
    name: str
    python: str

    @property
    def pickled_by(self) -> str:
        """Its ``python``."""
        return self.python

    @property
    def title(self) -> str:
        """Its ``name``."""
        return self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptWorkload(Workload):
    """The options of every script.

    Raises:
        InvalidRequest: The script has no name, or its arguments are one text.
    """

    script: str = field(kw_only=False)
    """The script's path; relative to ``source_dir`` where that is given."""
    args: tuple[str, ...] = ()
    """Its arguments, verbatim: ``sys.argv[1:]``."""
    source_dir: str | None = None
    """A folder that travels whole, but for what is hidden, caches, virtual environments and earlier results; None is
    the script with the modules and packages beside it that it imports."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        # tuple() would make an argument of each letter.
        if isinstance(self.args, str):
            raise InvalidRequest(f"{name}: args is a list of texts, got {self.args!r}; give args={self.args.split()!r}")
        # A command line has texts: 10 becomes "10".
        object.__setattr__(self, "args", tuple(str(item) for item in self.args))
        if not self.script:
            raise InvalidRequest(f"{name}: the path of the script is empty")

    @property
    def entry_script(self) -> "ScriptWorkload":
        """This."""
        return self

    @property
    def title(self) -> str:
        """The script's name without its suffix."""
        return Path(self.script).stem

    @property
    def parameters(self) -> Parameters:
        """Its arguments."""
        return of_command_line(self.args)

    def moved_to(self, script: str) -> Self:
        """Return the same for a source that lies in a payload, where the script has the path ``script``."""
        # No folder any more: in a payload the source is one, however it was found.
        return dataclasses.replace(self, script=script, source_dir=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Script(ScriptWorkload):
    """A Python script, run once, on the head, as ``__main__``, with ``RAY_ADDRESS`` set to the formed cluster.

    It joins the cluster by ``ray.init()``; or, with ``ray_init``, finds itself joined already.

    Raises:
        InvalidRequest: The script has no name.
    """

    runner: ClassVar[str] = "raysm.workloads.runners.programs:ScriptRunner"
    label: ClassVar[str] = "the script"
    keeps: ClassVar[str] = "what the script writes into the folder $SM_MODEL_DIR"

    ray_init: bool = False
    """Joins the cluster before the script begins, for one that calls no ``ray.init()``; a call of it would be refused
    by Ray, as any second one."""

    in_state: bool = False
    """Runs the script in $RAYSM_STATE, where a copy of its source lies: what it writes to its working folder, its
    checkpoints for one, is found there by the next run with ``resume`` and after an interruption. In ``args``,
    ``{state}`` is replaced by the state folder and ``{channel_NAME}`` by the folder of an input, also without this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledWorkload(Pickled, Workload):
    """The options of every workload whose code travels as a pickle."""

    packages: ClassVar[tuple[str, ...]] = ("cloudpickle",)

    name: str
    """For people: ``module.function``."""
    python: str
    """Version of the Python that pickled it, ``3.11``: another one cannot be trusted to read it."""

    # For people: the pickle is what counts, and its digest with it.
    arguments: Mapping[str, Any] = field(default_factory=dict, metadata=decides(result=False))
    """Its arguments, as ``raysm.request.workload`` shows them."""
    code: str = field(default="", metadata=decides(result=False))
    """SHA-256 of the function's own text; empty where it has none."""

    @property
    def parameters(self) -> Parameters:
        """Its ``arguments``."""
        return self.arguments

    @property
    def code_digest(self) -> str:
        """Its ``code``."""
        return self.code


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledFunction(PickledWorkload):
    """A function with its arguments, pickled by cloudpickle into the payload; its value is the job's result."""

    runner: ClassVar[str] = "raysm.workloads.runners.programs:FunctionRunner"
    label: ClassVar[str] = "a function"
    keeps: ClassVar[str] = "the value of the function"
    wrapper: ClassVar[Wrapper | None] = Wrapper("function", "raysm.Function(fn, *args, **kwargs)")
    returns_value: ClassVar[bool] = True


Precision = Literal["fp32", "bf16"]
"""The default precision of ``training.prepare``."""

RAY_VARIABLES: Mapping[str, str] = {
    # Ray's 15 lets every daemon go before the training, and unprivileged nobody can take it back.
    "RAY_worker_niceness": "0",
    # Each looks several times a second, which together takes half a percent of a core from the workers: for memory
    # that runs out, for what an autoscaler would want to know, and for events of Ray itself.
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
    "SCAN_EVENT_DIR_INTERVAL_SECONDS": "10",
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "1",
}
"""Variables by which Ray's daemons leave the cores to the workers."""

KEEPS = "what rank 0 leaves in the folder $SM_MODEL_DIR, or in the one in which it runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchScript(ScriptWorkload):
    """A script written for ``torchrun``, as it is: each worker runs it as ``__main__`` in a process of its own.

    The workers are one for each GPU of the cluster; without GPUs one for each instance, or ``workers_per_instance``.
    They see what torchrun sets. Where an instance takes no part (the head only coordinates, or has no GPU while others
    have), it has no worker. A script runs in a folder of its own that shows its source and, by their names, the
    channels; what rank 0's instance leaves there, and in SM_MODEL_DIR, becomes the job's result. The workers reach each
    other at ports that the system chooses: security groups have to let the instances through at all ports.

    Raises:
        InvalidRequest: The script has no name, or a number is out of its range.
    """

    runner: ClassVar[str] = "raysm.workloads.training.launch.torch_script:TorchScriptRunner"
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar[str | None] = "train"
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    wants_all_cpus_at_once: ClassVar[bool] = True
    # The lines of its processes come by raysm's relay.
    log_monitor: ClassVar[bool] = False
    relays_output: ClassVar[bool] = True

    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one where the cluster has none."""
    spawns: bool = False
    """True for a script that starts the processes of its node itself (``torch.multiprocessing.spawn``): one worker for
    each instance, all its GPUs visible. RANK and WORLD_SIZE then count instances; in ``args``, ``{rank}``,
    ``{world_size}``, ``{master_addr}`` and ``{master_port}`` are replaced by the instance's."""
    in_state: bool = False
    """Runs the script in $RAYSM_STATE, where a copy of its source lies: what it writes to its working folder, its
    checkpoints for one, is found there by the next run with ``resume`` and after an interruption. In ``args``,
    ``{state}`` is replaced by the state folder and ``{channel_NAME}`` by the folder of an input, also without this."""
    max_restarts: int = 0
    """How often all workers are started anew after one of them failed, at least 0. Losses of instances that
    ``Cluster(on_instance_loss="continue")`` allows do not count."""

    def __post_init__(self) -> None:
        ScriptWorkload.__post_init__(self)  # super() would look for the class that slots=True has replaced
        check_workers("TorchScript", self.workers_per_instance, self.max_restarts)
        if self.spawns and self.workers_per_instance not in (None, 1):
            raise InvalidRequest(
                "TorchScript: spawns means one worker for each instance, which starts the others itself; drop "
                f"workers_per_instance={self.workers_per_instance}, or spawns"
            )

    def workers_ahead(self, gpus: int) -> int:
        """Return one: the agent, which starts the processes itself."""
        return 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainLoop(PickledWorkload):
    """A training loop with its config, pickled by cloudpickle into the payload; ``raysm.DataParallel`` makes it."""

    runner: ClassVar[str] = "raysm.workloads.training.launch.data_parallel:DataParallelRunner"
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    wrapper: ClassVar[Wrapper | None] = Wrapper("loop", "raysm.DataParallel(train_loop, config=…)")
    packages: ClassVar[tuple[str, ...]] = ("cloudpickle", "torch", "safetensors", "pyarrow")  # the last is Ray Train's
    extra: ClassVar[str | None] = "train"
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    # The lines of its workers come by raysm's relay.
    log_monitor: ClassVar[bool] = False

    precision: Precision = "fp32"
    """The default precision of ``training.prepare``."""
    workers: int | None = None
    """Workers in all, at least 1; None is what the instances have."""
    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one where the cluster has none."""
    max_restarts: int = 0
    """Number of times that all workers are restarted after one of them failed."""

    def __post_init__(self) -> None:
        check_workers("DataParallel", self.workers_per_instance, self.max_restarts, self.workers)
        if self.precision not in get_args(Precision):
            raise InvalidRequest(f"DataParallel: precision is 'fp32' or 'bf16', got {self.precision!r}")


def check_workers(what: str, per_instance: int | None, max_restarts: int, workers: int | None = None) -> None:
    """Check the numbers that the training workloads share.

    Raises:
        InvalidRequest: One of them is no whole number, or out of its range.
    """
    for name, value, least in (
        ("workers", workers, 1),
        ("workers_per_instance", per_instance, 1),
        ("max_restarts", max_restarts, 0),
    ):
        if value is None and name != "max_restarts":
            continue
        if type(value) is not int or value < least:
            raise InvalidRequest(f"{what}: {name} must be a whole number of at least {least}, got {value!r}")

"""Trainings: a script for torchrun, and a training loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from raysm.core.protocol.instance_types import gpu_of
from raysm.core.request.options import check_counts, optional
from raysm.core.request.programs import PickledWorkload, Program
from raysm.core.request.workload import Wrapper
from raysm.errors import InvalidRequest

Precision = Literal["fp32", "bf16"]
"""The default precision of ``training.prepare``."""

FIRST_CAPABILITY_WITH_BF16 = (8, 0)
"""https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions"""

RAY_VARIABLES: Mapping[str, str] = {
    # At Ray's default of 15 every daemon would run before the training, and without root it cannot
    # be lowered again.
    "RAY_worker_niceness": "0",
    # By default these poll several times a second, which takes half a percent of a core: the memory
    # monitor, the load report for an autoscaler, and the events of Ray itself.
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
    "SCAN_EVENT_DIR_INTERVAL_SECONDS": "10",
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "1",
}
"""Variables that keep Ray's daemons from taking CPU time from a training."""

KEEPS = "what rank 0 leaves in the folder $SM_MODEL_DIR, or in the one in which it runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchScript(Program):
    """An unmodified script for ``torchrun``, which each worker runs as ``__main__``.

    Each worker is a process of its own. Any other script or command runs in the same way, once for
    each worker.

    There is one worker for each GPU of the cluster; without GPUs there is one for each instance, or
    ``workers_per_instance``. A head that only coordinates, or has no GPU while others have, has no
    worker. The workers have the environment variables of torchrun. Each runs in a folder with links
    to the script's source and to the channels, by name. The files that the instance of rank 0
    leaves there and in SM_MODEL_DIR become the job's result. The workers connect to each other at
    ports that the system chooses, so security groups must allow all ports between the instances.

    Raises:
        InvalidRequest: The script has no name, or a number is out of its range.
    """

    kind: ClassVar[str] = "torch_script"
    runner: ClassVar[str] = "raysm.features.training.cluster.launch.torch_script:TorchScriptRunner"
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar[str | None] = "train"
    reports_metrics: ClassVar[bool] = True
    preloads: ClassVar[tuple[str, ...]] = ("raysm.features.training.cluster.launch.torch_script",)
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    wants_all_cpus_at_once: ClassVar[bool] = True
    # raysm's own relay sends the output of the processes.
    log_monitor: ClassVar[bool] = False
    # The driver imports Ray, and runs no user code.
    prepares_ahead: ClassVar[bool] = True
    relays_output: ClassVar[bool] = True

    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one if the cluster has
    none."""
    spawns: bool = False
    """True for a script that starts the processes of its node itself
    (``torch.multiprocessing.spawn``): each instance has one worker, which sees all GPUs. RANK and
    WORLD_SIZE then count instances; in ``args``, ``{rank}``, ``{world_size}``, ``{master_addr}``
    and ``{master_port}`` are replaced by the instance's values."""
    share_state: bool = optional(False, result=False)
    """Copy the files in $RAYSM_STATE of rank 0's instance to all instances before the workers start
    or are restarted, for a script in which every rank loads what rank 0 saved. Files there that
    rank 0 does not have are removed."""
    max_restarts: int = 0
    """Number of times that all workers are restarted after one of them failed, at least 0. Losses
    of instances that ``Cluster(on_instance_loss="continue")`` allows do not count."""

    def __post_init__(self) -> None:
        Program.__post_init__(self)  # super() would look for the class that slots=True has replaced
        check_counts("TorchScript", 1, or_none=True, workers_per_instance=self.workers_per_instance)
        check_counts("TorchScript", 0, max_restarts=self.max_restarts)
        if self.spawns and self.workers_per_instance not in (None, 1):
            raise InvalidRequest(
                "TorchScript: spawns means one worker for each instance, which starts the others "
                f"itself; drop workers_per_instance={self.workers_per_instance}, or spawns"
            )

    @property
    def leaves_working_folder(self) -> bool:
        return not self.in_state

    @property
    def has_state_by_rank(self) -> bool:
        return self.in_state and not self.share_state

    def workers_ahead(self, gpus: int) -> int:
        """Return 1: the torchrun agent, which starts the processes."""
        return 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainLoop(PickledWorkload):
    """A training loop with its config, pickled by cloudpickle into the payload.

    ``raysm.DataParallel`` makes it.
    """

    kind: ClassVar[str] = "data_parallel"
    runner: ClassVar[str] = (
        "raysm.features.training.cluster.launch.data_parallel:DataParallelRunner"
    )
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    wrapper: ClassVar[Wrapper | None] = Wrapper("loop", "raysm.DataParallel(train_loop, config=…)")
    # The last is Ray Train's.
    packages: ClassVar[tuple[str, ...]] = ("cloudpickle", "torch", "safetensors", "pyarrow")
    extra: ClassVar[str | None] = "train"
    reports_metrics: ClassVar[bool] = True
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    # raysm's own relay sends the output of the workers.
    log_monitor: ClassVar[bool] = False

    precision: Precision = "fp32"
    """The default precision of ``training.prepare``."""
    workers: int | None = None
    """Number of workers in all, at least 1; None is ``workers_per_instance`` on every instance."""
    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one if the cluster has
    none."""
    max_restarts: int = 0
    """Number of times that all workers are restarted after one of them failed."""

    def __post_init__(self) -> None:
        workers = {"workers": self.workers, "workers_per_instance": self.workers_per_instance}
        check_counts("DataParallel", 1, or_none=True, **workers)
        check_counts("DataParallel", 0, max_restarts=self.max_restarts)
        if self.precision not in get_args(Precision):
            raise InvalidRequest(
                f"DataParallel: precision is 'fp32' or 'bf16', got {self.precision!r}"
            )

    def check_types(self, instance_types: Sequence[str]) -> None:
        for name in instance_types:
            gpu = gpu_of(name)
            lacks_bf16 = gpu is not None and gpu.capability < FIRST_CAPABILITY_WITH_BF16
            if gpu is not None and lacks_bf16 and self.precision == "bf16":
                raise InvalidRequest(
                    f"DataParallel: precision='bf16' on {name}, whose {gpu.name} GPUs "
                    "do not compute in bfloat16; use precision='fp32', or a type from g5 or p4d on"
                )

"""Training workloads: a script written for torchrun, or a function that each worker calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from raysm.errors import InvalidRequest
from raysm.request.function import PickledWorkload
from raysm.request.script import ScriptWorkload
from raysm.request.workload import Wrapper

__all__ = ["Precision", "TorchScript", "TrainLoop", "check_workers"]

Precision = Literal["fp32", "bf16", "fp8"]
"""What ``training.prepare`` computes in, where the loop does not say; ``fp8`` is for GPUs that multiply it."""

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
"""What Ray is told so that its daemons leave the cores to the workers."""

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

    runner: ClassVar[str] = "raysm.workloads.runners.torch_script:TorchScriptRunner"
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
        """Check the fields."""
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

    runner: ClassVar[str] = "raysm.workloads.runners.data_parallel:DataParallelRunner"
    label: ClassVar[str] = "the training"
    keeps: ClassVar[str] = KEEPS
    wrapper: ClassVar[Wrapper | None] = Wrapper("loop", "raysm.DataParallel(train_loop, config=…)")
    packages: ClassVar[tuple[str, ...]] = ("cloudpickle", "torch", "safetensors", "pyarrow")  # the last is Ray Train's
    extra: ClassVar[str | None] = "train"
    ray_variables: ClassVar[Mapping[str, str]] = RAY_VARIABLES
    # The lines of its workers come by raysm's relay.
    log_monitor: ClassVar[bool] = False

    precision: Precision = "fp32"
    """What ``training.prepare`` computes in, where the loop does not say."""
    workers: int | None = None
    """Workers in all, at least 1; None is what the instances have."""
    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one where the cluster has none."""
    max_restarts: int = 0
    """How often all workers are started anew after one of them failed."""

    def __post_init__(self) -> None:
        """Check the fields."""
        check_workers("DataParallel", self.workers_per_instance, self.max_restarts, self.workers)
        if self.precision not in get_args(Precision):
            raise InvalidRequest(f"DataParallel: precision is 'fp32', 'bf16' or 'fp8', got {self.precision!r}")


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

"""Training workloads: a script written for torchrun, or a function that each worker calls."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from raysm.errors import InvalidRequest

__all__ = ["Precision", "TorchScript", "TrainLoop", "check_workers"]

Precision = Literal["fp32", "bf16"]
"""What ``training.prepare`` computes in, where the loop does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchScript:
    """A script written for ``torchrun``, as it is: each worker runs it as ``__main__`` in a process of its own.

    The workers are one for each GPU of the cluster; without GPUs one for each instance, or ``workers_per_instance``.
    They see what torchrun sets. Where an instance takes no part (the head only coordinates, or has no GPU while others
    have), it has no worker. A script runs in a folder of its own that shows its source and, by their names, the
    channels; what rank 0's instance leaves there, and in SM_MODEL_DIR, becomes the job's result. The workers reach each
    other at ports that the system chooses: security groups have to let the instances through at all ports.

    Raises:
        InvalidRequest: The script has no name, or a number is out of its range.
    """

    kind: ClassVar[str] = "torch_script"
    keeps: ClassVar[str] = "what rank 0 leaves in the folder $SM_MODEL_DIR, or in the one in which it runs"
    input_check: ClassVar[str | None] = None

    script: str = field(kw_only=False)
    """The script's path; relative to ``source_dir`` where that is given."""
    args: tuple[str, ...] = ()
    """Its arguments, verbatim: ``sys.argv[1:]``."""
    source_dir: str | None = None
    """A folder that travels whole, but for what is hidden, caches, virtual environments and earlier results; None is
    the script with the modules and packages beside it that it imports."""
    workers_per_instance: int | None = None
    """Workers of each instance, at least 1; None is one for each GPU, or one where the cluster has none."""
    spawns: bool = False
    """True for a script that starts the processes of its node itself (``torch.multiprocessing.spawn``): one worker for
    each instance, all its GPUs visible. RANK and WORLD_SIZE then count instances; in ``args``, ``{rank}``,
    ``{world_size}``, ``{master_addr}`` and ``{master_port}`` are replaced by the instance's."""
    max_restarts: int = 0
    """How often all workers are started anew after one of them failed, at least 0. Losses of instances that
    ``Cluster(on_instance_loss="continue")`` allows do not count."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if isinstance(self.args, str):
            raise InvalidRequest(
                f"TorchScript: args is a list of texts, got {self.args!r}; give args={self.args.split()!r}"
            )
        # What a command line has are texts: 10 is told as "10".
        object.__setattr__(self, "args", tuple(str(item) for item in self.args))
        if not self.script:
            raise InvalidRequest("TorchScript: the path of the script is empty")
        check_workers("TorchScript", self.workers_per_instance, self.max_restarts)
        if self.spawns and self.workers_per_instance not in (None, 1):
            raise InvalidRequest(
                "TorchScript: spawns means one worker for each instance, which starts the others itself; drop "
                f"workers_per_instance={self.workers_per_instance}, or spawns"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainLoop:
    """A training loop with its config, pickled by cloudpickle into the payload; ``raysm.DataParallel`` makes it."""

    kind: ClassVar[str] = "data_parallel"
    keeps: ClassVar[str] = "what rank 0 leaves in the folder $SM_MODEL_DIR, or in the one in which it runs"
    input_check: ClassVar[str | None] = None

    name: str
    """For people: ``module.function``."""
    python: str
    """Version of the Python that pickled it, ``3.11``: another one cannot be trusted to read it."""
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
        if self.precision not in ("fp32", "bf16"):
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

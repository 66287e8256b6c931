"""The instances that train, their numbers of workers, and torchrun's variables of each worker.

Ranks follow the order of the cluster. If any instance has a GPU, instances without a GPU do not
train.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysm.core.protocol.names import counted
from raysm.errors import InvalidRequest
from raysm.instance.work.nodes import Node

GPU_TYPE = re.compile(r"ml\.(p|g|gr)\d\w*\.")
"""Families of instance types that have NVIDIA GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    node: Node
    group_rank: int
    first_rank: int
    workers: int
    gpus: int
    """GPUs of its workers together; 0 trains on CPUs."""

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.workers)

    def __str__(self) -> str:
        last = self.first_rank + self.workers - 1
        ranks = f"rank {last}" if self.workers == 1 else f"ranks {self.first_rank} to {last}"
        return f"{self.node.host} ({ranks})"


def place(
    nodes: Sequence[Node],
    *,
    workers_per_instance: int | None = None,
    workers: int | None = None,
    spawns: bool = False,
) -> tuple[Place, ...]:
    """Assign the workers to the instances.

    Without ``workers`` and ``workers_per_instance``, each GPU gets a worker; without GPUs, each
    instance gets one.
    """
    # A head that only coordinates offers no CPUs and GPUs.
    able = [node for node in nodes if node.cpus or node.gpus]
    for node in able:
        # Training on its CPUs would cost as much per hour, and be noticed hours later.
        if GPU_TYPE.match(node.instance_type) and not node.gpus:
            raise InvalidRequest(
                f"{node.host} is an {node.instance_type}, but shows no GPU: take an image with "
                "CUDA (locally: a machine with a GPU), and check CUDA_VISIBLE_DEVICES; to train on "
                "CPUs take an instance type without"
            )
    # DDP waits for the slowest: one CPU instance would hold all GPUs up.
    with_gpus = [node for node in able if node.gpus]
    chosen = with_gpus or able
    if not chosen:
        raise InvalidRequest("no instance is there to train on: the head only coordinates")
    counts = _counts(
        [node.gpus for node in chosen], bool(with_gpus), workers_per_instance, workers, spawns
    )
    for node, count in zip(chosen, counts, strict=False):
        if with_gpus and not spawns and count > node.gpus:
            raise InvalidRequest(
                f"{count} workers are asked for, and each needs a GPU, but {node.host} has "
                f"{counted(node.gpus, 'GPU')}"
            )
    places: list[Place] = []
    first = 0
    for node, count in zip(chosen, counts, strict=False):
        gpus = node.gpus if spawns or not node.gpus else count
        places.append(
            Place(node=node, group_rank=len(places), first_rank=first, workers=count, gpus=gpus)
        )
        first += count
    return tuple(places)


def _counts(
    gpus: list[int], on_gpus: bool, per_instance: int | None, workers: int | None, spawns: bool
) -> list[int]:
    """Return the number of workers of each instance; instances at the end may be left out."""
    most = len(gpus)
    if spawns:
        return [1] * most
    if per_instance is not None:
        if workers is None:
            return [per_instance] * most
        instances, rest = divmod(workers, per_instance)
        if rest or instances > most:
            raise InvalidRequest(
                f"workers={workers} with workers_per_instance={per_instance} needs "
                f"{workers / per_instance:g} instances, and {most} can train; drop one of the two"
            )
        return [per_instance] * instances
    if workers is None:
        return gpus if on_gpus else [1] * most
    if not on_gpus:
        share, rest = divmod(workers, most)
        return [count for count in (share + (index < rest) for index in range(most)) if count]
    if workers > sum(gpus):
        raise InvalidRequest(
            f"workers={workers}, but the instances have {counted(sum(gpus), 'GPU')} in all; each "
            "worker needs one"
        )
    counts: list[int] = []
    while workers:
        counts.append(min(gpus[len(counts)], workers))
        workers -= counts[-1]
    return counts


DEFAULTS: Mapping[str, str] = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    # A worker's output is no terminal, and what it says should be seen when it is said.
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    world_size: int
    instances: int
    master_address: str
    master_port: int
    attempt: int
    """0 at first, then one more each time that all workers are started again."""
    max_restarts: int
    run_id: str


def torchrun_variables(
    place: Place, local_rank: int, group: Group, threads: int | None = None
) -> dict[str, str]:
    rank = str(place.first_rank + local_rank)
    size = str(group.world_size)
    # An even share: as many threads as CPUs in each worker would slow all of them, and torchrun's 1
    # wastes CPUs.
    share = max(1, place.node.cpus // max(place.workers, place.gpus))
    return {
        "RANK": rank,
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(place.workers),
        "GROUP_RANK": str(place.group_rank),
        "NODE_RANK": str(place.group_rank),
        "GROUP_WORLD_SIZE": str(group.instances),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": group.master_address,
        "MASTER_PORT": str(group.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(group.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(group.max_restarts),
        "TORCHELASTIC_RUN_ID": group.run_id,
        # Rank 0 itself opens the store at MASTER_PORT, because there is no agent of torch's that
        # does.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "OMP_NUM_THREADS": str(share if threads is None else threads),
    }


def fill_arguments(args: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Replace ``{rank}`` and its like in the arguments of a script that spawns its own workers."""
    # str.replace and not str.format, because arguments may have braces of their own, for example as
    # JSON.
    values = {
        f"{{{name.lower()}}}": variables[name]
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    }
    filled: list[str] = []
    for arg in args:
        for name, value in values.items():
            arg = arg.replace(name, value)
        filled.append(arg)
    return tuple(filled)

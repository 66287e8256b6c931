"""What torchrun tells its workers, by environment variables. Pure: mappings that are laid over a process's own.

Source: torch/distributed/elastic/agent/server/local_elastic_agent.py and torch/distributed/run.py of torch 2.13.
NODE_RANK is what torchrun's predecessor and Lightning call GROUP_RANK.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysm.workloads.training.launch.placement import Place

__all__ = ["DEFAULTS", "Group", "fill_arguments", "torchrun_variables"]


DEFAULTS: Mapping[str, str] = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    # A worker's output is no terminal, and what it says should be seen when it is said.
    "PYTHONUNBUFFERED": "1",
}
"""Variables of every worker where the user has not set them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """What all workers of one attempt share."""

    world_size: int
    """Number of workers."""
    instances: int
    """Number of instances that train."""
    master_address: str
    """IP address of rank 0's instance."""
    master_port: int
    """A free port there."""
    attempt: int
    """0, raised each time that the group is started anew."""
    max_restarts: int
    """How often that may be."""
    run_id: str
    """The job's name."""


def torchrun_variables(place: Place, local_rank: int, group: Group, threads: int | None = None) -> dict[str, str]:
    """Return the variables of one worker.

    Args:
        place: Its instance.
        local_rank: Its number there.
        group: What all workers share.
        threads: OMP_NUM_THREADS where the user has set it; None is an even share of the instance's CPUs.
    """
    rank, size = str(place.first_rank + local_rank), str(group.world_size)
    # As many threads as CPUs in each worker would slow all of them: torchrun sets 1, which wastes the others.
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
        # Rank 0 itself opens the store at MASTER_PORT: there is no agent of torch's that does.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "OMP_NUM_THREADS": str(share if threads is None else threads),
    }


def fill_arguments(args: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of a script that spawns, with ``{rank}`` and its like replaced by the instance's."""
    # By replacing, not by str.format: arguments may hold braces of their own, JSON most of all.
    values = {f"{{{name.lower()}}}": variables[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    filled: list[str] = []
    for arg in args:
        for name, value in values.items():
            arg = arg.replace(name, value)
        filled.append(arg)
    return tuple(filled)

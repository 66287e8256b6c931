"""The instances as Ray knows them, and calls that go to each of them.

What flows in are the rows of ``ray.nodes()``, what flows out are typed ``Node`` values, and references to what each
instance answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysm.contract.names import LABEL_HOST, LABEL_INSTANCE_TYPE, LABEL_RANK
from raysm.errors import InvalidRequest

__all__ = ["Node", "answers", "ask_every_node", "cluster_nodes", "only_on"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One instance that is there, as Ray knows it."""

    host: str
    """Its name, ``algo-2``; empty where nobody labelled it."""
    node_id: str
    """Ray's; another one after its Ray was restarted."""
    address: str
    """IP address at which the others reach it."""
    rank: int
    """0 for the head, then by number."""
    instance_type: str
    """As SageMaker names it; empty where nobody says."""
    cpus: int
    """CPUs that it offers; 0 on a head that only coordinates."""
    gpus: int
    """GPUs that it offers."""
    object_store_bytes: int = 0
    """What its part of Ray's object store may hold."""


def cluster_nodes(rows: Iterable[Mapping[str, Any]] | None = None) -> list[Node]:
    """Return the instances that are alive, by rank.

    Args:
        rows: What ``ray.nodes()`` returned; None asks it.
    """
    nodes = [
        Node(
            host=row["Labels"].get(LABEL_HOST, ""),
            node_id=row["NodeID"],
            address=row["NodeManagerAddress"],
            rank=int(row["Labels"].get(LABEL_RANK, 0)),
            instance_type=row["Labels"].get(LABEL_INSTANCE_TYPE, ""),
            # Ray leaves out a resource of which there is none.
            cpus=int(row["Resources"].get("CPU", 0)),
            gpus=int(row["Resources"].get("GPU", 0)),
            object_store_bytes=int(row["Resources"].get("object_store_memory", 0)),
        )
        for row in (ray.nodes() if rows is None else rows)
        if row["Alive"]
    ]
    # Ray's own order says nothing, and may be another at the next call.
    return sorted(nodes, key=lambda node: node.rank)


def only_on(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Return the strategy of what runs on this one node, or fails: elsewhere its answer would be another's."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def ask_every_node(
    function: Callable[..., Any],
    *arguments: Any,
    nodes: Sequence[Node] | None = None,
    num_cpus: float = 0,
    num_gpus: float = 0,
    max_retries: int = 2,
) -> dict[Node, Any]:
    """Call a function on every instance at once; return the reference to each answer.

    ``ray.get`` of a reference raises what the function raised there, or that the instance went away.

    Args:
        function: Is pickled, and runs in a worker process of the instance.
        *arguments: Of the function.
        nodes: Those that are asked; None is all that are alive, also one that only coordinates.
        num_cpus: Reserved on the instance for the call; 0 so that a busy one answers too.
        num_gpus: The same.
        max_retries: How often the call is repeated where its worker dies.
    """
    # Shipped once for all instances, not once for each.
    task = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_retries=max_retries)(function)
    all_nodes = cluster_nodes() if nodes is None else nodes
    return {node: task.options(scheduling_strategy=only_on(node.node_id)).remote(*arguments) for node in all_nodes}


def answers(references: Iterable[Any]) -> list[Any]:
    """Return what the instances answered, without those of instances that went away.

    Raises:
        InvalidRequest: One of them cannot use what it has.
    """
    values = []
    for reference in references:
        try:
            values.append(ray.get(reference))
        except RayTaskError as error:
            # The user's files are at fault: Ray's wrapper would hide the line that says so in a traceback of raysm's.
            if isinstance(error.cause, InvalidRequest):
                raise error.cause from None
            raise
        except RayError:
            # It went away: who needs all of them sees by the values whose are missing.
            continue
    return values

"""The instances as Ray's nodes: list them, call functions on them, and notice a lost one.

Blocks can be bound to them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysm.core.protocol.names import LABEL_HOST, LABEL_INSTANCE_TYPE, LABEL_RANK
from raysm.errors import InstanceLost, InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One instance that is alive, as Ray describes it."""

    host: str
    """For example ``algo-2``; empty if the node has no label."""
    node_id: str
    """Ray's id; it changes when Ray starts again."""
    address: str
    rank: int
    """0 for the head, then by number."""
    instance_type: str
    cpus: int
    """0 on a head that only coordinates."""
    gpus: int
    object_store_bytes: int = 0


def cluster_nodes() -> list[Node]:
    nodes = [
        Node(
            host=row["Labels"].get(LABEL_HOST, ""),
            node_id=row["NodeID"],
            address=row["NodeManagerAddress"],
            rank=int(row["Labels"].get(LABEL_RANK, 0)),
            instance_type=row["Labels"].get(LABEL_INSTANCE_TYPE, ""),
            # Ray leaves out a resource that a node does not have.
            cpus=int(row["Resources"].get("CPU", 0)),
            gpus=int(row["Resources"].get("GPU", 0)),
            object_store_bytes=int(row["Resources"].get("object_store_memory", 0)),
        )
        for row in ray.nodes()
        if row["Alive"]
    ]
    # Ray's own order is arbitrary.
    return sorted(nodes, key=lambda node: node.rank)


def only_on(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def ask_every_node(
    function: Callable[..., Any],
    *arguments: Any,
    nodes: Sequence[Node] | None = None,
    num_cpus: float = 0,
    num_gpus: float = 0,
    max_retries: int = 2,
) -> dict[Node, Any]:
    """Call a function on every instance at once, or on ``nodes``; return references to answers.

    ``num_cpus`` 0 lets a busy instance, or one that only coordinates, answer too.
    """
    # Ray ships the function once for all instances, not once for each.
    task = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_retries=max_retries)(function)
    all_nodes = cluster_nodes() if nodes is None else nodes
    return {
        node: task.options(scheduling_strategy=only_on(node.node_id)).remote(*arguments)
        for node in all_nodes
    }


def answers(references: Iterable[Any]) -> list[Any]:
    """Return the answers of the instances that are not lost.

    Raises:
        InvalidRequest: One of the instances raised it.
    """
    values = []
    for reference in references:
        try:
            values.append(ray.get(reference))
        except RayTaskError as error:
            # The user's files are at fault: Ray's wrapper would hide the message in a traceback of
            # raysm's.
            if isinstance(error.cause, InvalidRequest):
                raise error.cause from None
            raise
        except RayError:
            # The instance was lost; callers that need all answers notice that one is missing.
            continue
    return values


class PlacedBlock:
    """A block that says on which instance it runs and which further values the function gets.

    Inherit it, and define what you need as a field or a property:

    - ``host``: the instance that the block runs on, ``algo-2``; None means any;
    - ``needs``: names of other instances that must be alive;
    - ``inputs``: Ray object references, whose values the function gets after the block: they travel
      while the block waits for its CPU.

    Example::

        @dataclass(frozen=True)
        class Shard(raysm.PlacedBlock):
            name: str
            host: str
    """

    # No attributes: one here would become the default of a subclass's field.
    __slots__ = ()


def host_of(block: object) -> str | None:
    host: str | None = _attribute_of(block, "host", None)
    return host


def inputs_of(block: object) -> Sequence[Any]:
    inputs: Sequence[Any] = _attribute_of(block, "inputs", ())
    return inputs


def _attribute_of(block: object, name: str, default: Any) -> Any:
    # Any object may be a block, and a user's own may have an attribute of that name with another
    # meaning.
    return getattr(block, name, default) if isinstance(block, PlacedBlock) else default


LOST_AFTER_S = 60.0


def tasks_at_once(nodes: Iterable[Mapping[str, float]], num_cpus: float, num_gpus: float) -> int:
    at_once = 0
    for resources in nodes:
        fits = [
            resources.get(name, 0) / need
            for name, need in (("CPU", num_cpus), ("GPU", num_gpus))
            if need > 0
        ]
        # A task that needs neither runs once on each; the epsilon lets ten tasks of 0.1 CPUs fit
        # into one CPU.
        at_once += math.floor(min(fits, default=1.0) + 1e-9)
    return at_once


class Presence:
    def __init__(self, num_cpus: float, num_gpus: float) -> None:
        self._task = num_cpus, num_gpus
        self._since: dict[str, float] = {}
        self._nowhere_since: float | None = None

    def check(
        self, blocks: Iterable[Any], nodes: Sequence[Mapping[str, Any]], now_s: float
    ) -> None:
        """Raise InstanceLost if an instance that is needed is away too long.

        An instance is needed if a block needs it, or if no instance is left that can run a task.
        """
        if tasks_at_once((node["Resources"] for node in nodes), *self._task):
            self._nowhere_since = None
        elif self._nowhere_since is None:
            self._nowhere_since = now_s
        elif now_s - self._nowhere_since > LOST_AFTER_S:
            raise InstanceLost(
                f"for {now_s - self._nowhere_since:.0f} s no instance has been there that can "
                f"run a task of num_cpus={self._task[0]:g} and num_gpus={self._task[1]:g}: "
                "all that could went away"
            )
        alive = {node["Labels"].get(LABEL_HOST, "") for node in nodes}
        bound = {
            host: block
            for block in blocks
            for host in (host_of(block), *_attribute_of(block, "needs", ()))
            if host
        }
        # The time starts again for an instance that came back, or that no block needed meanwhile.
        self._since = {host: self._since.get(host, now_s) for host in bound if host not in alive}
        for host, since in self._since.items():
            if now_s - since > LOST_AFTER_S:
                raise InstanceLost(
                    f"{host} has been away for {now_s - since:.0f} s, and only it has {bound[host]}"
                )

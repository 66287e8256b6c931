"""Since when an instance that a block is bound to, or every one that could run a task, has been away. Pure.

What flows in are the blocks that are being worked on, the instances that are there and a clock; what flows out is
nothing, or ``InstanceLost``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysm.contract.names import LABEL_HOST
from raysm.errors import InstanceLost
from raysm.workloads.placed import hosts_of

__all__ = ["LOST_AFTER_S", "Presence", "tasks_at_once"]

LOST_AFTER_S = 60.0
"""How long an instance that a block needs, or any that could run it, may be away before it is given up."""


def tasks_at_once(nodes: Iterable[Mapping[str, float]], num_cpus: float, num_gpus: float) -> int:
    """Return how many tasks of that size run at once on nodes of these resources."""
    at_once = 0
    for resources in nodes:
        fits = [resources.get(name, 0) / need for name, need in (("CPU", num_cpus), ("GPU", num_gpus)) if need > 0]
        # A task that needs neither runs once on each; ten tasks of 0.1 CPUs are one CPU, rounded or not.
        at_once += math.floor(min(fits, default=1.0) + 1e-9)
    return at_once


class Presence:
    """What is known of the instances while blocks are worked on."""

    def __init__(self, num_cpus: float, num_gpus: float) -> None:
        """Take what one task needs."""
        self._task = num_cpus, num_gpus
        self._since: dict[str, float] = {}
        self._nowhere_since: float | None = None

    def check(self, blocks: Iterable[Any], nodes: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Look at the instances.

        Args:
            blocks: Those that are being worked on.
            nodes: The rows of ``ray.nodes()`` that are alive.
            now_s: Of a monotonic clock.

        Raises:
            InstanceLost: One that a block is bound to, or all that could run a task, have been away too long.
        """
        self._check_any(nodes, now_s)
        alive = {node["Labels"].get(LABEL_HOST, "") for node in nodes}
        bound = {host: block for block in blocks for host in hosts_of(block)}
        # One that came back, or that no block needs any more, begins anew when it goes away again.
        self._since = {host: self._since.get(host, now_s) for host in bound if host not in alive}
        for host, since in self._since.items():
            if now_s - since > LOST_AFTER_S:
                raise InstanceLost(f"{host} has been away for {now_s - since:.0f} s, and only it has {bound[host]}")

    def _check_any(self, nodes: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Give up where no instance can run a task: Ray itself would wait for one for ever."""
        if tasks_at_once((node["Resources"] for node in nodes), *self._task):
            self._nowhere_since = None
        elif self._nowhere_since is None:
            self._nowhere_since = now_s
        elif now_s - self._nowhere_since > LOST_AFTER_S:
            raise InstanceLost(
                f"for {now_s - self._nowhere_since:.0f} s no instance has been there that can run a task of "
                f"num_cpus={self._task[0]:g} and num_gpus={self._task[1]:g}: all that could went away"
            )

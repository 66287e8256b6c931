"""Blocks as tasks of Ray: each goes to a process that Ray chooses, on the instance that it is bound to.

``Processes`` is the other way to run blocks, and looks the same to ``map_blocks``: ``Workers`` is what both are.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ray

from raysm.contract.names import LABEL_HOST
from raysm.workloads.cancelling import cancel
from raysm.workloads.placed import host_of, inputs_of

__all__ = ["Tasks", "Workers"]

CANCEL_ATTEMPTS = 5
CANCEL_S = 0.5
"""How often tasks are cancelled at most, and how long one cancelling is given."""


class Workers(Protocol):
    """What runs blocks."""

    def wait(self, timeout_s: float, block: Any = None) -> bool:
        """Return whether the block can be submitted, waiting until then at most so long."""

    def submit(self, shipped: Any, block: Any) -> Any:
        """Return the object of Ray that the block's value becomes; ``shipped`` is the function."""

    def replace(self, reference: Any) -> None:
        """Put something in the place of what died over that block."""

    def close(self, unfinished: Sequence[Any]) -> None:
        """End what still works on these blocks: nobody wants their values any more."""


class Tasks:
    """One task of Ray for each block."""

    def __init__(self, num_cpus: float, num_gpus: float) -> None:
        """Take what one task needs."""
        # No retries by Ray: it would not count them, and run out of memory for ever.
        self._task = ray.remote(max_retries=0, num_cpus=num_cpus, num_gpus=num_gpus)(_call)

    def wait(self, timeout_s: float, block: Any = None) -> bool:
        """Say that it can be: tasks wait in Ray's own queues."""
        return True

    def submit(self, shipped: Any, block: Any) -> Any:
        """Return the object that the block's value becomes."""
        host = host_of(block)
        where = {"scheduling_strategy": "SPREAD"} if host is None else {"label_selector": {LABEL_HOST: host}}
        return self._task.options(name=str(block), **where).remote(shipped, block, *inputs_of(block))

    def replace(self, reference: Any) -> None:
        """Do nothing: the next task gets another process."""

    def close(self, unfinished: Sequence[Any]) -> None:
        """Cancel them: their CPUs are free for what comes after them."""
        # A task that is just being handed to its process is in no queue any more and does not run yet: Ray finds
        # nothing to cancel, and does not try again.
        for _ in range(CANCEL_ATTEMPTS):
            if not unfinished:
                return
            cancel(unfinished)
            left = list(unfinished)
            unfinished = ray.wait(left, num_returns=len(left), timeout=CANCEL_S, fetch_local=False)[1]


def _call(function: Callable[..., Any], block: Any, *inputs: Any) -> Any:
    return function(block, *inputs)

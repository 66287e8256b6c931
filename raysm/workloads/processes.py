"""Processes that keep what they hold from one block to the next: each has its CPUs and GPUs until all blocks are done.

Ray ends the process of a task with a GPU after each call, since nobody else would have that GPU's memory otherwise. An
actor keeps its GPU, and what lies there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import ray

from raysm.workloads.placed import inputs_of

__all__ = ["Processes"]


class _Process:
    def call(self, function: Callable[..., Any], block: Any, *inputs: Any) -> Any:
        return function(block, *inputs)

    def ready(self) -> None:
        """Answer, as soon as there is a place for this process."""


class Processes:
    """So many processes, which stand in for a remote function: a block goes to the one that has the fewest."""

    def __init__(self, count: int, num_cpus: float, num_gpus: float) -> None:
        """Start them, spread over the instances."""
        # No restarts by Ray: a new process would not know which blocks the old one had, and they are tried again
        # elsewhere.
        self._kind = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0)(_Process)
        self._running: dict[Any, list[Any]] = {}
        self._starting: dict[Any, Any] = {}
        for _ in range(count):
            self._start()

    def wait(self, timeout_s: float) -> bool:
        """Return whether one of them is there to take blocks, waiting until then at most so long."""
        if self._starting:
            starting = list(self._starting.values())
            if len(starting) == len(self._running):
                ray.wait(starting, num_returns=1, timeout=timeout_s)
            there, _ = ray.wait(starting, num_returns=len(starting), timeout=0)
            self._starting = {process: ready for process, ready in self._starting.items() if ready not in there}
        return len(self._starting) < len(self._running)

    def submit(self, shipped: Any, block: Any) -> Any:
        """Return the object that a block's value becomes; ``wait`` has said that one is there."""
        self._running = {process: _unfinished(blocks) for process, blocks in self._running.items()}
        # One that has no place yet might never have one: its instance went away, or another's work holds the CPU.
        there = [process for process in self._running if process not in self._starting]
        # The one with the fewest: blocks differ in length, and a queue by turns would let some processes wait.
        process = min(there, key=lambda process: len(self._running[process]))
        reference = process.call.options(name=str(block)).remote(shipped, block, *inputs_of(block))
        self._running[process].append(reference)
        return reference

    def replace(self, reference: Any) -> None:
        """Start another process instead of the one that a block ended, or that ended with its instance."""
        for process, blocks in list(self._running.items()):
            if reference in blocks:
                del self._running[process]
                self._starting.pop(process, None)
                ray.kill(process)
                self._start()

    def close(self, unfinished: Sequence[Any]) -> None:
        """End them, and with them what they work on."""
        for process in self._running:
            ray.kill(process)

    def _start(self) -> None:
        process = self._kind.options(scheduling_strategy="SPREAD").remote()
        self._running[process] = []
        self._starting[process] = process.ready.remote()


def _unfinished(blocks: list[Any]) -> list[Any]:
    return ray.wait(blocks, num_returns=len(blocks), timeout=0, fetch_local=False)[1] if blocks else []

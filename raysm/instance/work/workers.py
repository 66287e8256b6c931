"""The two ways to run blocks: Ray tasks, and processes.

Processes keep their memory from one block to the next.

Tasks are cancelled from another process. ``ray.cancel`` in the process that submitted a task races
with the reply of a task that just ends: Ray looks the task up in one thread and forgets it in
another, and if both meet, a check of Ray's own ends the whole process ("Tried to complete task that
was not pending", Ray 2.60; one in some thousand cancelled short tasks). If another process asks,
the owner does both in one thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ray
from ray.exceptions import RayError

from raysm.core.protocol.names import LABEL_HOST
from raysm.instance.work.nodes import cluster_nodes, host_of, inputs_of


# No CPU, because the tasks to cancel hold all of them.
@ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
def _cancel(references: Sequence[Any]) -> None:
    for reference in references:
        ray.cancel(reference, force=True)


def cancel(references: Sequence[Any]) -> None:
    # In a list, because Ray would wait for the value of a reference that is itself an argument.
    _cancel.remote(list(references))


CANCEL_ATTEMPTS = 5
CANCEL_S = 0.5
"""Attempts to cancel tasks, and seconds for each."""


class Workers(Protocol):
    def wait(self, timeout_s: float, block: Any = None) -> bool:
        """Wait until the block can be submitted, at most ``timeout_s``; return whether it can."""

    def submit(self, shipped: Any, block: Any) -> Any:
        """Submit a block and return the reference of its value.

        ``shipped`` is the reference of the function.
        """

    def finish(self, reference: Any) -> None:
        """Note that the block with this reference has ended, whether it succeeded or failed."""

    def replace(self, reference: Any) -> None:
        """Replace the worker that died while it ran the block with this reference."""

    def close(self, unfinished: Sequence[Any]) -> None:
        """End the tasks of these blocks, whose values are not needed any more."""


class Tasks:
    def __init__(self, num_cpus: float, num_gpus: float) -> None:
        # No retries by Ray: it would retry without limit when memory runs out.
        self._task = ray.remote(max_retries=0, num_cpus=num_cpus, num_gpus=num_gpus)(_call)

    def wait(self, timeout_s: float, block: Any = None) -> bool:
        """Return True, because tasks wait in Ray's own queues."""
        return True

    def submit(self, shipped: Any, block: Any) -> Any:
        host = host_of(block)
        where = (
            {"scheduling_strategy": "SPREAD"}
            if host is None
            else {"label_selector": {LABEL_HOST: host}}
        )
        return self._task.options(name=str(block), **where).remote(
            shipped, block, *inputs_of(block)
        )

    def finish(self, reference: Any) -> None:
        """Do nothing: Ray knows which of its processes are free."""

    def replace(self, reference: Any) -> None:
        """Do nothing: the next task gets another process."""

    def close(self, unfinished: Sequence[Any]) -> None:
        # Ray finds nothing to cancel while a task is handed to its process, and does not try again.
        for _ in range(CANCEL_ATTEMPTS):
            if not unfinished:
                return
            cancel(unfinished)
            left = list(unfinished)
            unfinished = ray.wait(left, num_returns=len(left), timeout=CANCEL_S, fetch_local=False)[
                1
            ]


def _call(function: Callable[..., Any], block: Any, *inputs: Any) -> Any:
    return function(block, *inputs)


class _Process:
    def call(self, function: Callable[..., Any], block: Any, *inputs: Any) -> Any:
        return function(block, *inputs)

    def ready(self) -> str:
        """Return the node of this process. Ray answers once the process has started."""
        return str(ray.get_runtime_context().get_node_id())


class Processes:
    """A fixed number of actors. Each block goes to the actor with the fewest unfinished blocks."""

    def __init__(self, count: int, num_cpus: float, num_gpus: float) -> None:
        # No restarts by Ray: a new process would not know which blocks the old one had, and they
        # are tried again elsewhere.
        self._kind = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0)(_Process)
        self._running: dict[Any, list[Any]] = {}
        self._starting: dict[Any, Any] = {}
        self._hosts: dict[Any, str] = {}
        for _ in range(count):
            self._start()

    def wait(self, timeout_s: float, block: Any = None) -> bool:
        host = host_of(block)
        if self._starting:
            if not self._started(host):
                ray.wait(list(self._starting.values()), num_returns=1, timeout=timeout_s)
            starting = list(self._starting.values())
            answering, _ = ray.wait(starting, num_returns=len(starting), timeout=0)
            hosts = {node.node_id: node.host for node in cluster_nodes()} if answering else {}
            for process, ready in list(self._starting.items()):
                if ready not in answering:
                    continue
                del self._starting[process]
                try:
                    self._hosts[process] = hosts.get(ray.get(ready), "")
                except RayError:
                    # The process died before it had a block; a block submitted to it would lose an
                    # attempt.
                    del self._running[process]
                    self._start()
        return bool(self._started(host))

    def _started(self, host: str | None) -> list[Any]:
        """Return the processes that have started, on ``host`` or, if None, on any instance."""
        # Others may never start, because their instance went away or other work holds the CPU.
        ready = [process for process in self._running if process not in self._starting]
        return (
            ready
            if host is None
            else [process for process in ready if self._hosts.get(process) == host]
        )

    def submit(self, shipped: Any, block: Any) -> Any:
        ready = self._started(host_of(block))
        # The process with the fewest blocks, because blocks differ in length.
        process = min(ready, key=lambda process: len(self._running[process]))
        reference = process.call.options(name=str(block)).remote(shipped, block, *inputs_of(block))
        self._running[process].append(reference)
        return reference

    def finish(self, reference: Any) -> None:
        # Not when Ray says that a block has ended: if a process dies, its blocks end before
        # ``replace`` comes, which finds the process by them.
        for blocks in self._running.values():
            if reference in blocks:
                blocks.remove(reference)

    def replace(self, reference: Any) -> None:
        for process, blocks in list(self._running.items()):
            if reference in blocks:
                del self._running[process]
                self._starting.pop(process, None)
                self._hosts.pop(process, None)
                ray.kill(process)
                self._start()

    def close(self, unfinished: Sequence[Any]) -> None:
        for process in self._running:
            ray.kill(process)

    def _start(self) -> None:
        process = self._kind.options(scheduling_strategy="SPREAD").remote()
        self._running[process] = []
        self._starting[process] = process.ready.remote()

"""Cells of other instances than the head: each instance has a namespace of its own, in one process of Ray's.

What flows in are calls of the server's loop that name an instance; what flows out are outcomes. What a cell prints
goes by Ray to a process on the head, and from there to the server: so nothing listens on any network for it.
"""

import asyncio
import signal
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from raysm.contract.names import LABEL_HOST
from raysm.errors import InvalidRequest
from raysm.request.codec import to_json
from raysm.workloads.session import work
from raysm.workloads.session.calls import Call, Executor
from raysm.workloads.session.insisting import Insisting
from raysm.workloads.session.outcomes import death_of, failed, interrupted
from raysm.workloads.session.printing import Printing

__all__ = ["ByInstance", "InstanceCells", "check_host"]

# No CPU: a namespace stays, and would take one from every map.
PROCESS: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.NamespaceProcess)
FORWARDER: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.Forwarder)
STRIKE: Any = ray.remote(num_cpus=0, max_retries=0)(work.strike)


def check_host(host: str) -> None:
    """Refuse the name of an instance that there is not.

    Raises:
        InvalidRequest: The message has those that there are.
    """
    # Asked of Ray each time: an instance that was lost is none of them any more.
    hosts = sorted(node["Labels"].get(LABEL_HOST, "") for node in ray.nodes() if node["Alive"])
    if host not in hosts:
        raise InvalidRequest(f"there is no instance {host!r}: the session has {', '.join(hosts)}")


class ByInstance:
    """Runs cells where they are to run: on the head, or elsewhere; see ``Executor``."""

    def __init__(self, head: str, here: Executor, elsewhere: Executor) -> None:
        """Begin.

        Args:
            head: Name of this instance.
            here: Does the cells of this instance.
            elsewhere: Does those of others.
        """
        self._head, self._here, self._elsewhere = head, here, elsewhere

    async def run(self, call: Call) -> tuple[bytes, bool]:
        """Run one; see ``Executor``."""
        return await self._of(call).run(call)

    def interrupt(self, call: Call) -> None:
        """Have one end; see ``Executor``."""
        self._of(call).interrupt(call)

    def _of(self, call: Call) -> Executor:
        # Whoever names none means the head's namespace, which is the session's own.
        return self._here if call.request.host in ("", self._head) else self._elsewhere


@dataclass(frozen=True, slots=True)
class _Process:
    actor: Any
    pid: int


class InstanceCells:
    """Runs cells in the namespaces of other instances, on each one at a time; see ``Executor``."""

    def __init__(self, head: str, printing: Printing) -> None:
        """Begin without a process: most sessions never need one.

        Args:
            head: Name of this instance.
            printing: Takes what cells print.
        """
        self._head, self._printing = head, printing
        self._forwarder: Any = None
        self._processes: dict[str, _Process] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._running: dict[str, _Process] = {}
        self._insisting = Insisting()

    async def run(self, call: Call) -> tuple[bytes, bool]:
        """Run one; see ``Executor``."""
        host = call.request.host
        check_host(host)
        with self._printing.of(call):
            try:
                # asyncio's locks are fair: cells run in the order in which they came, as those of the head do.
                async with self._turns.setdefault(host, asyncio.Lock()):
                    if call.is_cancelled:
                        return interrupted(host).encode(), True
                    outcome, has_failed, messages = await self._run_in(call, await self._process(host))
            except RayError as error:
                return self._died(call, error)
            await self._printing.drain(call, messages)
        return outcome, has_failed

    async def _run_in(self, call: Call, process: _Process) -> tuple[bytes, bool, int]:
        # Not before: one that waits for its turn is told as waiting, as on the head.
        call.begin()
        self._running[call.id] = process
        try:
            task = process.actor.do.options(name=f"{call.request.name} on {call.request.host}")
            outcome: tuple[bytes, bool, int] = await task.remote(call.id, to_json(call.request), call.body)
            return outcome
        finally:
            del self._running[call.id]

    async def _process(self, host: str) -> _Process:
        if host not in self._processes:
            # One for all instances: it does nothing but pass lines on.
            if self._forwarder is None:
                on_head = {"label_selector": {LABEL_HOST: self._head}}
                self._forwarder = FORWARDER.options(**on_head).remote(self._printing.socket)
            actor = PROCESS.options(label_selector={LABEL_HOST: host}).remote(host, self._forwarder)
            self._processes[host] = _Process(actor, await actor.pid.remote())
        return self._processes[host]

    def _died(self, call: Call, error: RayError) -> tuple[bytes, bool]:
        host = call.request.host
        # The next cell begins with an empty namespace, in another process.
        self._processes.pop(host, None)
        reason = f"{death_of(call.request.name, error)}; the namespace of {host} is lost with it"
        return failed("WorkerDied", reason, host).encode(), True

    def interrupt(self, call: Call) -> None:
        """Have a cell end, by a signal; one that waits sees for itself that it is not to begin."""
        self._insisting.begin(call, lambda: self._strike(call))

    def _strike(self, call: Call) -> None:
        process = self._running.get(call.id)
        if process is not None:
            # Its process is on another machine: a task there has to send it.
            options = {"label_selector": {LABEL_HOST: call.request.host}}
            STRIKE.options(**options).remote(process.pid, int(signal.SIGINT))

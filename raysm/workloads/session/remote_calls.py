"""Work on other instances: batches and commands as Ray tasks, and cells in one process on each instance."""

import asyncio
import dataclasses
import pickle
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from raysm.contract.names import LABEL_HOST
from raysm.contract.session import BATCH, SCATTER, SHELL, Outcome
from raysm.errors import InvalidRequest
from raysm.request.codec import to_json
from raysm.workloads.nodes import tasks_at_once
from raysm.workloads.session import work
from raysm.workloads.session.blobs import Blob
from raysm.workloads.session.calls import Call, Executor, Insisting
from raysm.workloads.session.outcomes import death_of, failed, interrupted
from raysm.workloads.session.relay import Printing
from raysm.workloads.workers import cancel

__all__ = ["ByInstance", "InstanceCells", "RemoteCalls", "check_host"]

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

    async def run(self, call: Call) -> tuple[bytes | Blob, bool]:
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
            outcome: tuple[bytes, bool, int] = await task.remote(call.id, to_json(call.request), bytes(call.content))
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


DEATHS = 3
"""How often an item is tried whose process dies: that is seldom the item's fault."""


class RemoteCalls:
    """Runs batches and commands as tasks of Ray; see ``Executor``."""

    def __init__(self, head: str, folder: Path) -> None:
        """Prepare.

        Args:
            head: Name of this instance, on which commands run for which nobody names another one.
            folder: In which they run there.
        """
        self._head, self._folder = head, folder
        self._references: dict[str, Any] = {}
        self._scattered: list[Any] = []
        # By digest, as one object of Ray's: thousands of batches send the function once.
        self._functions: dict[str, Any] = {}
        self._insisting = Insisting()
        self._kinds: Mapping[str, Callable[[Call], Any]] = {
            BATCH: self._batch,
            SHELL: self._shell,
            SCATTER: self._scatter,
        }

    def keep_function(self, digest: str, pickled: bytes) -> None:
        """Keep a function of which batches will come."""
        if digest not in self._functions:
            # Held for as long as the session: whoever maps it again does not send it again.
            self._functions[digest] = ray.put(pickled)

    @staticmethod
    def totals() -> tuple[float, float]:
        """Return the CPUs and GPUs of all instances together."""
        resources = ray.cluster_resources()
        return float(resources.get("CPU", 0)), float(resources.get("GPU", 0))

    @staticmethod
    def slots(num_cpus: float, num_gpus: float) -> int:
        """Return how many tasks of that size run at once.

        Raises:
            InvalidRequest: Not one of them fits on any instance.
        """
        # What instances have, not what is free just now: other calls end, and what waits is then run.
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        at_once = tasks_at_once(nodes, num_cpus, num_gpus)
        if not at_once:
            most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in ("CPU", "GPU")}
            raise InvalidRequest(
                f"a task of num_cpus={num_cpus:g} and num_gpus={num_gpus:g} fits on no instance: the largest has "
                f"{most['CPU']:g} CPUs and {most['GPU']:g} GPUs"
            )
        return at_once

    # Executor

    async def run(self, call: Call) -> tuple[bytes, bool]:
        """Run one; see ``Executor``."""
        try:
            outcome: tuple[bytes, bool] = await self._kinds[call.request.kind](call)
            return outcome
        # Before RayError, of which both are.
        except TaskCancelledError:
            return interrupted(self._head).encode(), True
        except RayTaskError as error:
            # raysm's own code around the call, or what it was given: it could not be unpickled there.
            return failed(type(error.cause).__name__, str(error.cause)).encode(), True
        except RayError as error:
            if call.is_cancelled:
                return interrupted(self._head).encode(), True
            return failed("WorkerDied", death_of(call.request.name, error), self._head).encode(), True
        finally:
            # As long as it is held, Ray keeps its value in the object store.
            self._references.pop(call.id, None)

    def interrupt(self, call: Call) -> None:
        """Have a call end, by the end of its process: nobody sees what a batch prints, or needs what it has begun."""
        # Again and again: of a batch whose items are tried one by one, the next one may just be on its way.
        self._insisting.begin(call, lambda: self._strike(call.id))

    def _strike(self, id: str) -> None:
        if id in self._references:
            cancel([self._references[id]])

    # Kinds

    async def _shell(self, call: Call) -> tuple[bytes, bool]:
        host = call.request.host or self._head
        check_host(host)
        # The folder of the calls is the head's alone.
        folder = str(self._folder) if host == self._head else ""
        options = self._options(call, {"label_selector": {LABEL_HOST: host}})
        call.begin()
        return await self._await(call, TASKS["shell"].options(**options).remote(bytes(call.content).decode(), folder))

    async def _scatter(self, call: Call) -> tuple[bytes, bool]:
        call.begin()
        # Beside the event loop: Ray copies the parcel. The driver owns it, and so it lasts as long as the session.
        reference = await asyncio.to_thread(ray.put, pickle.PickleBuffer(call.content))
        self._scattered.append(reference)
        return Outcome(pickled=pickle.dumps(cloudpickle.dumps(reference))).encode(), False

    async def _batch(self, call: Call) -> tuple[bytes, bool]:
        call.begin()
        body, first = bytes(call.content), call.request.first
        items = pickle.loads(body)
        try:
            return await self._await(call, self._submit(call, body, first))
        except RayError as error:
            if isinstance(error, (RayTaskError, TaskCancelledError)) or call.is_cancelled:
                raise
        # One of them, nobody knows which, has killed the process, or somebody else has: so each by itself.
        began_s = time.monotonic()
        # One after the other: each may be the one that takes so much memory that all processes of the host die.
        outcomes = [await self._single(call, item, number) for number, item in enumerate(items, start=first)]
        return Outcome(pickled=pickle.dumps((time.monotonic() - began_s, outcomes))).encode(), False

    async def _single(self, call: Call, item: bytes, number: int) -> bytes:
        for attempt in range(1, DEATHS + 1):
            try:
                encoded, _ = await self._await(call, self._submit(call, pickle.dumps([item]), number))
                _, (outcome,) = pickle.loads(Outcome.decode(encoded).pickled)
                return bytes(outcome)
            except (RayTaskError, TaskCancelledError):
                raise
            except RayError as error:
                if call.is_cancelled or attempt == DEATHS:
                    died = failed("WorkerDied", f"{death_of(call.request.name, error)}; {attempt} processes died of it")
                    assert died.error is not None
                    return Outcome(error=dataclasses.replace(died.error, item=number)).encode()
        raise AssertionError("the last attempt returns")

    def _submit(self, call: Call, items: bytes, first: int) -> Any:
        request = call.request
        if request.function not in self._functions:
            raise InvalidRequest(f"the function {request.function!r} of the batch was not sent")
        # Ray's default fills an instance to the half before it takes the next; the items of a map are alike.
        options = self._options(call, {"scheduling_strategy": "SPREAD"})
        function = self._functions[request.function]
        task = TASKS["batch"].options(**options)
        return task.remote(function, items, first, request.retries, request.return_exceptions, request.unpack)

    def _options(self, call: Call, where: Mapping[str, Any]) -> dict[str, Any]:
        request = call.request
        return {"name": request.name, "num_cpus": request.num_cpus, "num_gpus": request.num_gpus, **where}

    async def _await(self, call: Call, reference: Any) -> tuple[bytes, bool]:
        self._references[call.id] = reference
        outcome: tuple[bytes, bool] = await reference
        return outcome


TASKS: Mapping[str, Any] = {
    # No retries by Ray: what has begun must not be executed a second time without anybody's knowing.
    name: ray.remote(max_retries=0)(function)
    for name, function in (("batch", work.batch), ("shell", work.shell))
}

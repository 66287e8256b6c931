"""Work on other instances: batches and commands as Ray tasks, and cells in one process each."""

import asyncio
import contextlib
import pickle
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from raysm.core.protocol.names import LABEL_HOST
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest
from raysm.features.session.cluster import work
from raysm.features.session.cluster.blobs import Blob
from raysm.features.session.cluster.calls import Call, CallEnded, Executor, SignalRepeater
from raysm.features.session.cluster.outcomes import (
    describe_death,
    failed_outcome,
    interrupted_outcome,
)
from raysm.features.session.cluster.output import OutputReceiver
from raysm.features.session.protocol import BATCH, FUNCTION, SCATTER, SHELL, Outcome
from raysm.instance.work.nodes import tasks_at_once
from raysm.instance.work.workers import cancel

# Without a CPU, because a namespace stays and would take one from every map.
PROCESS: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.NamespaceProcess)
FORWARDER: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.Forwarder)
SEND_SIGNAL: Any = ray.remote(num_cpus=0, max_retries=0)(work.send_signal)
SIGNALS_S = 60.0
"""How long to wait for signals that are still on their way: Ray may have to start a process for
each."""


def check_host(host: str) -> None:
    # Asked each time, because instances may be lost.
    hosts = sorted(node["Labels"].get(LABEL_HOST, "") for node in ray.nodes() if node["Alive"])
    if host not in hosts:
        raise InvalidRequest(f"there is no instance {host!r}: the session has {', '.join(hosts)}")


@dataclass(frozen=True, slots=True)
class _Process:
    actor: Any
    pid: int


class InstanceCells:
    """Runs cells in the namespaces of all instances, one at a time on each instance.

    ``here`` runs those of the head.
    """

    def __init__(self, head: str, here: Executor, receiver: OutputReceiver) -> None:
        self._head = head
        self._here = here
        self._receiver = receiver
        self._forwarder: Any = None
        self._processes: dict[str, _Process] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._running: dict[str, _Process] = {}
        self._signals: dict[str, list[Any]] = {}
        self._repeater = SignalRepeater()

    def _is_here(self, call: Call) -> bool:
        # Without a name the cell runs on the head.
        return call.request.host in ("", self._head)

    async def run(self, call: Call) -> tuple[bytes | Blob, bool]:
        if self._is_here(call):
            return await self._here.run(call)
        host = call.request.host
        check_host(host)
        with self._receiver.collect(call.id, call.output):
            try:
                # asyncio's locks are fair, so cells run in their order of arrival, as on the head.
                async with self._turns.setdefault(host, asyncio.Lock()):
                    if call.is_cancelled:
                        raise CallEnded(interrupted_outcome(host))
                    outcome, has_failed, messages = await self._run_in(
                        call, await self._process(host)
                    )
            except RayError as error:
                # The next cell begins with an empty namespace, in another process.
                self._processes.pop(host, None)
                why = (
                    f"{describe_death(call.request.name, error)}; "
                    f"the namespace of {host} is lost with it"
                )
                raise CallEnded(failed_outcome("WorkerDied", why, host)) from error
            await self._receiver.drain(call.id, messages)
        return outcome, has_failed

    async def _run_in(self, call: Call, process: _Process) -> tuple[bytes, bool, int]:
        call.start()
        self._running[call.id] = process
        try:
            task = process.actor.execute.options(name=f"{call.request.name} on {call.request.host}")
            outcome: tuple[bytes, bool, int] = await task.remote(
                call.id, to_json(call.request), bytes(call.content)
            )
        finally:
            del self._running[call.id]
            signals = self._signals.pop(call.id, [])
        # A signal that is still on its way would interrupt the next cell.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*signals, return_exceptions=True), SIGNALS_S)
        return outcome

    async def _process(self, host: str) -> _Process:
        if host not in self._processes:
            # One forwarder for all instances.
            if self._forwarder is None:
                on_head = {"label_selector": {LABEL_HOST: self._head}}
                self._forwarder = FORWARDER.options(**on_head).remote(self._receiver.socket)
            actor = PROCESS.options(label_selector={LABEL_HOST: host}).remote(host, self._forwarder)
            self._processes[host] = _Process(actor, await actor.pid.remote())
        return self._processes[host]

    def interrupt(self, call: Call) -> None:
        if self._is_here(call):
            self._here.interrupt(call)
        else:
            # A waiting cell checks ``is_cancelled`` when its turn comes.
            self._repeater.start(call, lambda: self._signal(call))

    def _signal(self, call: Call) -> None:
        process = self._running.get(call.id)
        if process is not None:
            # A task on that instance sends the signal.
            options = {"label_selector": {LABEL_HOST: call.request.host}}
            signal_call = SEND_SIGNAL.options(**options).remote(process.pid, int(signal.SIGINT))
            self._signals.setdefault(call.id, []).append(signal_call)


MAX_DEATHS = 3
"""How often to try an item whose process dies, which is seldom the item's fault."""


class RemoteCalls:
    """Runs batches and commands as Ray tasks, and keeps scattered values; see ``Executor``."""

    def __init__(self, head: str, folder: Path) -> None:
        self._head = head
        self._folder = folder
        self._references: dict[str, Any] = {}
        self._scattered: list[Any] = []
        # References to functions in Ray's object store, by digest.
        self._functions: dict[str, Any] = {}
        self._repeater = SignalRepeater()
        self._kinds = {
            FUNCTION: self._function,
            BATCH: self._batch,
            SHELL: self._shell,
            SCATTER: self._scatter,
        }

    @staticmethod
    def count_resources() -> tuple[float, float]:
        resources = ray.cluster_resources()
        return float(resources.get("CPU", 0)), float(resources.get("GPU", 0))

    @staticmethod
    def count_slots(num_cpus: float, num_gpus: float) -> int:
        # By total resources, not by free ones, because other calls will end.
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        at_once = tasks_at_once(nodes, num_cpus, num_gpus)
        if not at_once:
            most = {
                name: max((node.get(name, 0) for node in nodes), default=0)
                for name in ("CPU", "GPU")
            }
            raise InvalidRequest(
                f"a task of num_cpus={num_cpus:g} and num_gpus={num_gpus:g} fits on no instance: "
                f"the largest has {most['CPU']:g} CPUs and {most['GPU']:g} GPUs"
            )
        return at_once

    # Executor

    async def run(self, call: Call) -> tuple[bytes, bool]:
        try:
            outcome: tuple[bytes, bool] = await self._kinds[call.request.kind](call)
            return outcome
        # These two are subclasses of RayError.
        except TaskCancelledError as error:
            raise CallEnded(interrupted_outcome(self._head)) from error
        except RayTaskError as error:
            # raysm's own code failed, for example because the arguments could not be unpickled.
            raise CallEnded(failed_outcome(type(error.cause).__name__, str(error.cause))) from error
        except RayError as error:
            raise call.explain_death(error, self._head) from error
        finally:
            # Lets Ray free the value in the object store.
            self._references.pop(call.id, None)

    def interrupt(self, call: Call) -> None:
        # Repeated, because a batch may be submitting its items one by one.
        self._repeater.start(call, lambda: self._signal(call.id))

    def _signal(self, id: str) -> None:
        if id in self._references:
            cancel([self._references[id]])

    # Kinds

    async def _shell(self, call: Call) -> tuple[bytes, bool]:
        host = call.request.host or self._head
        check_host(host)
        # The folder of the calls exists only on the head.
        folder = str(self._folder) if host == self._head else ""
        options = self._options(call, {"label_selector": {LABEL_HOST: host}})
        call.start()
        return await self._await(
            call, TASKS["shell"].options(**options).remote(bytes(call.content).decode(), folder)
        )

    async def _scatter(self, call: Call) -> tuple[bytes, bool]:
        call.start()
        # In a thread, because Ray copies the parcel. The driver owns the object, so it lasts until
        # the session ends.
        reference = await asyncio.to_thread(ray.put, pickle.PickleBuffer(call.content))
        self._scattered.append(reference)
        return Outcome(pickled=pickle.dumps(cloudpickle.dumps(reference))).encode(), False

    async def _function(self, call: Call) -> tuple[bytes, bool]:
        call.start()
        digest = call.request.function
        if digest not in self._functions:
            self._functions[digest] = await asyncio.to_thread(ray.put, bytes(call.content))
        return Outcome().encode(), False

    async def _batch(self, call: Call) -> tuple[bytes, bool]:
        call.start()
        body = bytes(call.content)
        first = call.request.first
        items = pickle.loads(body)
        try:
            return await self._await(call, self._submit(call, body, first))
        except RayError as error:
            if isinstance(error, (RayTaskError, TaskCancelledError)) or call.is_cancelled:
                raise
        # The process died, perhaps because of an unknown item. Try the items separately and one
        # after the other, because one may take so much memory that all processes of the host die.
        started_s = time.monotonic()
        outcomes = [
            await self._single(call, item, number) for number, item in enumerate(items, start=first)
        ]
        return Outcome(
            pickled=pickle.dumps((time.monotonic() - started_s, outcomes))
        ).encode(), False

    async def _single(self, call: Call, item: bytes, number: int) -> bytes:
        for attempt in range(1, MAX_DEATHS + 1):
            try:
                encoded, _ = await self._await(
                    call, self._submit(call, pickle.dumps([item]), number)
                )
                _, (outcome,) = pickle.loads(Outcome.decode(encoded).pickled)
                return bytes(outcome)
            except (RayTaskError, TaskCancelledError):
                raise
            except RayError as error:
                if call.is_cancelled or attempt == MAX_DEATHS:
                    why = (
                        f"{describe_death(call.request.name, error)}; "
                        f"{attempt} processes died of it"
                    )
                    return failed_outcome("WorkerDied", why, item=number).encode()
        raise AssertionError("the last attempt returns")

    def _submit(self, call: Call, items: bytes, first: int) -> Any:
        request = call.request
        if request.function not in self._functions:
            raise InvalidRequest(f"the function {request.function!r} of the batch was not sent")
        # SPREAD, because Ray's default fills half of an instance before it uses the next one.
        options = self._options(call, {"scheduling_strategy": "SPREAD"})
        function = self._functions[request.function]
        task = TASKS["batch"].options(**options)
        return task.remote(
            function, items, first, request.retries, request.return_exceptions, request.unpack
        )

    def _options(self, call: Call, where: Mapping[str, Any]) -> dict[str, Any]:
        request = call.request
        return {
            "name": request.name,
            "num_cpus": request.num_cpus,
            "num_gpus": request.num_gpus,
            **where,
        }

    async def _await(self, call: Call, reference: Any) -> tuple[bytes, bool]:
        self._references[call.id] = reference
        outcome: tuple[bytes, bool] = await reference
        return outcome


TASKS: Mapping[str, Any] = {
    # Without retries by Ray, because work must not be executed twice unnoticed.
    name: ray.remote(max_retries=0)(function)
    for name, function in (("batch", work.run_batch), ("shell", work.run_shell))
}

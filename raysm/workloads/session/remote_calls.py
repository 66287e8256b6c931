"""Batches and commands, which run on any instance: as tasks of Ray's, in processes of its own.

What flows in are calls of the server's loop, what flows out are the outcomes that ``work`` has made, or, where a
process died, what is known of its death.
"""

import dataclasses
import pickle
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from raysm.contract.names import LABEL_HOST
from raysm.contract.session import BATCH, SHELL, Outcome
from raysm.errors import InvalidRequest
from raysm.workloads.cancelling import cancel
from raysm.workloads.presence import tasks_at_once
from raysm.workloads.session import work
from raysm.workloads.session.calls import Call
from raysm.workloads.session.insisting import Insisting
from raysm.workloads.session.instances import check_host
from raysm.workloads.session.outcomes import death_of, failed, interrupted

__all__ = ["RemoteCalls"]

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
        # By digest, as one object of Ray's: thousands of batches send the function once.
        self._functions: dict[str, Any] = {}
        self._insisting = Insisting()
        self._kinds: Mapping[str, Callable[[Call], Any]] = {BATCH: self._batch, SHELL: self._shell}

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
        return await self._await(call, TASKS["shell"].options(**options).remote(call.body.decode(), folder))

    async def _batch(self, call: Call) -> tuple[bytes, bool]:
        call.begin()
        items, first = pickle.loads(call.body), call.request.first
        try:
            return await self._await(call, self._submit(call, call.body, first))
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
        return task.remote(function, items, first, request.retries, request.return_exceptions)

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

"""Calls that run in processes of Ray's: each in one of its own, so that one that dies takes nobody along.

What flows in are calls of the server's loop, what flows out are the outcomes that ``work`` has made, or, where a
process died, what is known of its death.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from raysm.contract.names import LABEL_HOST
from raysm.contract.session import BATCH, CALL, SHELL, Outcome
from raysm.errors import InvalidRequest
from raysm.workloads.presence import tasks_at_once
from raysm.workloads.session import work
from raysm.workloads.session.calls import Call
from raysm.workloads.session.outcomes import failed, interrupted
from raysm.workloads.session.relay import Place

__all__ = ["RemoteCalls"]

SIGNAL_S = 0.5
"""How often a call is signalled that was interrupted: it may be in code that catches the first."""

FORCE_S = 5.0
"""After so long its process is killed."""

DEATHS = 3
"""How often an item is tried whose process dies: that is seldom the item's fault."""

DRAIN_S = 2.0
"""How long the last of a call's output may be under way."""


class RemoteCalls:
    """Runs calls, batches and commands as tasks of Ray."""

    def __init__(self, head: str, folder: Path, socket: Path) -> None:
        """Prepare.

        Args:
            head: Name of this instance, on which calls run.
            folder: In which they run.
            socket: Where their processes tell what they print.
        """
        self._head, self._folder, self._socket = head, folder, socket
        self._pids: dict[str, int] = {}
        self._drained: dict[str, asyncio.Event] = {}
        self._calls: dict[str, Call] = {}
        self._references: dict[str, list[Any]] = {}
        # By digest, as one object of Ray's: thousands of batches send the function once.
        self._functions: dict[str, Any] = {}
        self._insisting: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._kinds: Mapping[str, Callable[[Call], Any]] = {CALL: self._call, BATCH: self._batch, SHELL: self._shell}

    async def start(self) -> None:
        """Listen for what calls print; on a socket in a folder that nobody else can enter."""
        # Of a message of more than 64 KiB, asyncio's limit, nothing would arrive.
        self._server = await asyncio.start_unix_server(self._listen, self._socket, limit=64 << 20)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

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
        self._calls[call.id] = call
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
            return failed("WorkerDied", _death(call, error), self._head).encode(), True
        finally:
            # References too: as long as one is held, Ray keeps its value in the object store.
            for table in (self._calls, self._references, self._pids, self._drained):
                table.pop(call.id, None)

    def interrupt(self, call: Call) -> None:
        """Have a call end: by a signal, and where that does not help by the end of its process."""
        task = asyncio.create_task(self._insist(call))
        self._insisting.add(task)
        task.add_done_callback(self._insisting.discard)

    async def _insist(self, call: Call) -> None:
        until_s = time.monotonic() + FORCE_S
        while not call.done.is_set():
            pid = self._pids.get(call.id)
            # From here on by Ray, which kills the process.
            is_late = time.monotonic() > until_s
            if pid is not None and not is_late:
                # Ray's own cancelling does not wake a process from a sleep.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            else:
                for reference in self._references.get(call.id, ()):
                    ray.cancel(reference, force=pid is not None or is_late or call.request.kind != CALL)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(call.done.wait(), SIGNAL_S)

    # Kinds

    async def _call(self, call: Call) -> tuple[bytes, bool]:
        # Before the task is sent: its process may connect before ``remote`` has returned.
        self._drained[call.id] = asyncio.Event()
        place = Place(call=call.id, socket=str(self._socket), folder=str(self._folder))
        options = self._options(call, {"label_selector": {LABEL_HOST: self._head}})
        reference = TASKS["call"].options(**options).remote(call.body, place, call.request.name, self._head)
        outcome = await self._await(call, reference)
        # Its output came by another way, and belongs before its outcome.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drained[call.id].wait(), DRAIN_S)
        return outcome

    async def _shell(self, call: Call) -> tuple[bytes, bool]:
        host = call.request.host or self._head
        known = sorted(node["Labels"].get(LABEL_HOST, "") for node in ray.nodes() if node["Alive"])
        if host not in known:
            raise InvalidRequest(f"there is no instance {host!r}: the session has {', '.join(known)}")
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
                    died = failed("WorkerDied", f"{_death(call, error)}; {attempt} processes died of it")
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
        self._references[call.id] = [reference]
        outcome: tuple[bytes, bool] = await reference
        return outcome

    # What calls print

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call_id = ""
        try:
            # The call of a process that dies before is known by its reference alone.
            hello = json.loads(await reader.readline())
            call_id = hello["call"]
            call = self._calls.get(call_id)
            if call is None:
                return
            self._pids[call_id] = hello["pid"]
            call.begin()
            async for line in reader:
                self._hear(call, json.loads(line))
        finally:
            self._pids.pop(call_id, None)
            if call_id in self._drained:
                # The connection's end is the end of its output: whatever was sent has been read.
                self._drained[call_id].set()
            writer.close()

    @staticmethod
    def _hear(call: Call, message: Mapping[str, str]) -> None:
        if "event" in message:
            # In a thread of the server, whose own output is the job's log.
            sys.stdout.write(message["event"] + "\n")
            sys.stdout.flush()
        else:
            call.output.write(message["stream"], message["text"])


TASKS: Mapping[str, Any] = {
    # No retries by Ray: what has begun must not be executed a second time without anybody's knowing.
    name: ray.remote(max_retries=0)(function)
    for name, function in (("call", work.call), ("batch", work.batch), ("shell", work.shell))
}


def _death(call: Call, error: RayError) -> str:
    lines: Sequence[str] = str(error).strip().splitlines() or [type(error).__name__]
    return f"the process of {call.request.name} died: {lines[0]}"

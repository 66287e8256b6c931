"""Calls in processes of their own: each has one for as long as it runs, so that one that dies takes nobody along.

What flows in are calls of the server's loop, what flows out are the outcomes that ``work`` has made, or, where a
process died, what is known of its death. The processes are actors of Ray's that stay: a task of Ray's for each call
asked for a process, connected it and let go of it again, which was half of a short call's time.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from raysm.contract.names import LABEL_HOST
from raysm.workloads.session import work
from raysm.workloads.session.calls import Call
from raysm.workloads.session.crew import Crew
from raysm.workloads.session.insisting import Insisting
from raysm.workloads.session.outcomes import death_of, failed, interrupted
from raysm.workloads.session.relay import Place

__all__ = ["CallProcesses"]

FORCE_S = 5.0
"""For so long an interrupted call is signalled; then its process is killed."""

DRAIN_S = 2.0
"""How long the last of a call's output may be under way."""

LEAST, MOST = 2, 8
"""Of the processes that take turns with short calls: two on a head of one core too, since a call may start another one
and wait for it; no more than eight on a large one, since each is 100 MB and short calls need no more."""

# No retries by Ray: what has begun must not be executed a second time without anybody's knowing.
ACTOR: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.CallProcess)


@dataclass(frozen=True, slots=True, eq=False)
class _Process:
    actor: Any
    pid: int


@dataclass(slots=True)
class _Running:
    """A call, and what is heard of it."""

    call: Call
    process: _Process | None = None
    messages: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)


class CallProcesses:
    """Runs calls on the head; see ``Executor``."""

    def __init__(self, head: str, folder: Path, socket: Path) -> None:
        """Prepare.

        Args:
            head: Name of this instance.
            folder: In which calls run.
            socket: Where their processes tell what they print.
        """
        self._head, self._folder, self._socket = head, folder, socket
        self._running: dict[str, _Running] = {}
        self._crew: Crew[_Process] = Crew(max(LEAST, min(MOST, os.cpu_count() or 1)), self._start, self._end)
        self._insisting = Insisting()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen for what calls print, on a socket in a folder that nobody else can enter; start the first process."""
        # Of a message of more than 64 KiB, asyncio's limit, nothing would arrive.
        self._server = await asyncio.start_unix_server(self._listen, self._socket, limit=64 << 20)
        self._crew.prepare()

    def close(self) -> None:
        """Listen no more."""
        self._crew.close()
        if self._server is not None:
            self._server.close()

    async def run(self, call: Call) -> tuple[bytes, bool]:
        """Run one; see ``Executor``."""
        running = self._running[call.id] = _Running(call)
        try:
            running.process = await self._crew.enter(call.id)
            if running.process is None:
                return interrupted(self._head).encode(), True
            return await self._run_in(running, running.process)
        except RayError as error:  # no process could be started
            return failed("WorkerDied", death_of(call.request.name, error), self._head).encode(), True
        finally:
            del self._running[call.id]

    async def _run_in(self, running: _Running, process: _Process) -> tuple[bytes, bool]:
        call, free = running.call, self._crew.lose
        call.begin()
        try:
            # Under its own name: so Ray's dashboard and its timeline show it.
            task = process.actor.call.options(name=call.request.name)
            outcome, has_failed, messages = await task.remote(call.id, call.body, call.request.name, self._head)
            free = self._crew.leave
        except RayError as error:
            if call.is_cancelled:
                return interrupted(self._head).encode(), True
            return failed("WorkerDied", death_of(call.request.name, error), self._head).encode(), True
        finally:
            # Before its output is awaited: the next call need not wait for it, nor be hit by this one's signals.
            running.process = None
            free(process)
        await self._await_output(running, messages)
        return outcome, has_failed

    async def _await_output(self, running: _Running, messages: int) -> None:
        """Wait for what came by another way than the outcome, and belongs before it."""
        with contextlib.suppress(asyncio.TimeoutError):
            while running.messages < messages:
                running.more.clear()
                await asyncio.wait_for(running.more.wait(), DRAIN_S)

    # Their end

    def interrupt(self, call: Call) -> None:
        """Have a call end: by a signal, and where that does not help by the end of its process."""
        # One that waits for its turn has no process that could be signalled.
        self._crew.turn_away(call.id)
        until_s = time.monotonic() + FORCE_S
        self._insisting.begin(call, lambda: self._strike(call.id, until_s))

    def _strike(self, id: str, until_s: float) -> None:
        running = self._running.get(id)
        # A process has its next call only when this one has let go of it: none is hit by mistake.
        if running is not None and running.process is not None:
            number = signal.SIGINT if time.monotonic() < until_s else signal.SIGKILL
            # Ray's own cancelling does not wake a process from a sleep.
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.process.pid, number)

    # Processes

    async def _start(self) -> _Process:
        place = Place(socket=str(self._socket), folder=str(self._folder))
        actor = ACTOR.options(label_selector={LABEL_HOST: self._head}).remote(place)
        return _Process(actor, await actor.pid.remote())

    @staticmethod
    def _end(process: _Process) -> None:
        ray.kill(process.actor)

    # What calls print

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for line in reader:
                # Half a line is what an interrupt leaves that struck in the midst of a message.
                with contextlib.suppress(ValueError):
                    self._hear(json.loads(line))
        finally:
            writer.close()

    def _hear(self, message: Mapping[str, str]) -> None:
        # A thread of the user's may print when its call is over: nobody waits for that.
        running = self._running.get(message["call"])
        if "event" in message:
            # In a thread of the server, whose own output is the job's log.
            sys.stdout.write(message["event"] + "\n")
            sys.stdout.flush()
        elif running is not None:
            running.call.output.write(message["stream"], message["text"])
        if running is not None:
            running.messages += 1
            running.more.set()

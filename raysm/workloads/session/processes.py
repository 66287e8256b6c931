"""Calls in processes of their own: each has one for as long as it runs, so that one that dies takes nobody along.

What flows in are calls of the server's loop, what flows out are the outcomes that ``work`` has made, or, where a
process died, what is known of its death. The processes are actors of Ray's that stay: a task of Ray's for each call
asked for a process, connected it and let go of it again, which was half of a short call's time. Calls go to them by a
socket: Ray's part is to start and to end them, and to say how one died.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from raysm.contract.names import LABEL_HOST
from raysm.workloads.session import work
from raysm.workloads.session.call_line import CallLine
from raysm.workloads.session.calls import Call
from raysm.workloads.session.crew import Crew
from raysm.workloads.session.insisting import Insisting
from raysm.workloads.session.outcomes import death_of, failed, interrupted
from raysm.workloads.session.printing import Printing
from raysm.workloads.session.relay import Place

__all__ = ["CallProcesses"]

FORCE_S = 5.0
"""For so long an interrupted call is signalled; then its process is killed."""

LINGER_S = 0.5
"""For so long what a process has sent before its end may be under way."""

REASON_S = 5.0
"""For so long Ray is waited for to say why a process has ended that has."""

LEAST, MOST = 2, 8
"""Of the processes that take turns with short calls: two on a head of one core too, since a call may start another one
and wait for it; no more than eight on a large one, since each is 100 MB and short calls need no more."""

# No retries by Ray: what has begun must not be executed a second time without anybody's knowing.
ACTOR: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.CallProcess)


@dataclass(frozen=True, slots=True, eq=False)
class _Process:
    actor: Any
    pid: int
    line: CallLine
    serving: Any
    """Ray's word of its end."""
    gone: "asyncio.Future[None]"
    """The system's."""


class CallProcesses:
    """Runs calls on the head; see ``Executor``."""

    def __init__(self, head: str, folder: Path, printing: Printing) -> None:
        """Begin without a process.

        Args:
            head: Name of this instance.
            folder: In which calls run.
            printing: Takes what they print.
        """
        self._head, self._folder, self._printing = head, folder, printing
        self._running: dict[str, _Process] = {}
        self._lines: set[CallLine] = set()
        self._watched: set[int] = set()
        self._numbers = itertools.count()
        self._crew: Crew[_Process] = Crew(max(LEAST, min(MOST, os.cpu_count() or 1)), self._start, self._end)
        self._insisting = Insisting()

    def prepare(self) -> None:
        """Start the process of the first call."""
        self._crew.prepare()

    def close(self) -> None:
        """Start and end no process any more."""
        self._crew.close()
        for descriptor in list(self._watched):
            self._forget(descriptor)
        for line in self._lines:
            line.close()

    async def run(self, call: Call) -> tuple[bytes, bool]:
        """Run one; see ``Executor``."""
        with self._printing.of(call):
            try:
                process = await self._crew.enter(call.id)
                if process is None:
                    return interrupted(self._head).encode(), True
                outcome, has_failed, messages = await self._run_in(call, process)
            except (RayError, ConnectionError) as error:
                if call.is_cancelled:
                    return interrupted(self._head).encode(), True
                return failed("WorkerDied", death_of(call.request.name, error), self._head).encode(), True
            await self._printing.drain(call, messages)
        return outcome, has_failed

    async def _run_in(self, call: Call, process: _Process) -> tuple[bytes, bool, int]:
        call.begin()
        self._running[call.id] = process
        free = self._lose
        try:
            outcome = await process.line.call(call.id, call.body, call.request.name, self._head)
            free = self._crew.leave
            return outcome
        except ConnectionError:
            # Ray knows why, some milliseconds after the socket; where it knows nothing, this is all that is known.
            serving = asyncio.ensure_future(process.serving)
            await asyncio.wait([serving, process.gone], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([serving], timeout=REASON_S)
            if serving.done():
                serving.result()
            else:
                serving.cancel()
            raise
        finally:
            # Before its output is awaited: the next call need not wait for it, nor be hit by this one's signals.
            del self._running[call.id]
            free(process)

    # Their end

    def interrupt(self, call: Call) -> None:
        """Have a call end: by a signal, and where that does not help by the end of its process."""
        # One that waits for its turn has no process that could be signalled.
        self._crew.turn_away(call.id)
        until_s = time.monotonic() + FORCE_S
        self._insisting.begin(call, lambda: self._strike(call.id, until_s))

    def _strike(self, id: str, until_s: float) -> None:
        process = self._running.get(id)
        # A process has its next call only when this one has let go of it: none is hit by mistake.
        if process is not None:
            number = signal.SIGINT if time.monotonic() < until_s else signal.SIGKILL
            # Ray's own cancelling does not wake a process from a sleep.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    # Processes

    async def _start(self) -> _Process:
        # Beside the socket of what they print; short: the path of a socket has at most 107 bytes.
        path = str(Path(self._printing.socket).with_name(f"c{next(self._numbers)}"))
        place = Place(socket=self._printing.socket, folder=str(self._folder))
        actor = ACTOR.options(label_selector={LABEL_HOST: self._head}).remote(place, path)
        pid = await actor.pid.remote()
        serving = actor.serve.options(name="calls").remote()
        line = await CallLine.to(path)
        self._lines.add(line)
        return _Process(actor, pid, line, serving, self._end_of(pid, line))

    def _end_of(self, pid: int, line: CallLine) -> "asyncio.Future[None]":
        """Return what is done once a process has ended; then its line is broken off.

        A child that it leaves behind, a pool's for one, holds its sockets open for as long as it lives: neither the
        line nor Ray would tell of its end, and the call would wait for the child.
        """
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()

        def ended() -> None:
            self._forget(descriptor)
            gone.set_result(None)
            loop.call_later(LINGER_S, line.abort)

        # Linux alone has it; elsewhere the socket has to do.
        with contextlib.suppress(AttributeError, OSError):
            descriptor = os.pidfd_open(pid)
            self._watched.add(descriptor)
            loop.add_reader(descriptor, ended)
        return gone

    def _forget(self, descriptor: int) -> None:
        self._watched.discard(descriptor)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    def _lose(self, process: _Process) -> None:
        self._let_go(process)
        self._crew.lose(process)

    def _end(self, process: _Process) -> None:
        self._let_go(process)
        ray.kill(process.actor)

    def _let_go(self, process: _Process) -> None:
        self._lines.discard(process.line)
        process.line.close()

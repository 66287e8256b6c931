"""Calls on the head, in processes that take turns.

They are Ray actors that stay: a Ray task for each call asked for a process, connected it and released it again, which
took half of a short call's time. Ray itself would start a process for each call, since calls take no CPU: a thousand
short ones waited for processes that need a second of a core each (154 calls a second). A fixed number of processes is
no solution either, because calls may wait for one another.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError

from raysm.contract.names import LABEL_HOST
from raysm.workloads.session import work
from raysm.workloads.session.blobs import Blob, Blobs
from raysm.workloads.session.calls import Call, Insisting
from raysm.workloads.session.outcomes import death_of, failed, interrupted
from raysm.workloads.session.relay import Place, Printing
from raysm.workloads.session.work import CallLine

__all__ = ["CallProcesses", "Crew"]

P = TypeVar("P")

PATIENCE_S = 0.1
"""A process whose call takes longer is not waited for any more: much beside a short call, little beside a process's
start."""

IDLE_S = 30.0
"""After so long without a call a process ends that is one too many. Ray gives its own a second, and would start them
anew for each cell that a user sends after some thought."""


class Crew(Generic[P]):
    """The processes that do calls, and the calls that wait for one, in the order in which they came."""

    def __init__(
        self,
        width: int,
        start: Callable[[], Awaitable[P]],
        end: Callable[[P], None],
        *,
        patience_s: float = PATIENCE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """Begin with no process.

        Args:
            width: How many take turns, beside those that a long call holds.
            start: Starts a process.
            end: Ends one that is free.
            patience_s: A call that takes longer holds its process.
            idle_s: How long one too many may be free.
        """
        self._width, self._start, self._end = width, start, end
        self._patience_s, self._idle_s = patience_s, idle_s
        self._waiting: dict[str, asyncio.Future[P | None]] = {}
        # Since when each has had its call, the longest held first: a dict keeps the order of its keys.
        self._busy: dict[P, float] = {}
        self._free: dict[P, asyncio.TimerHandle | None] = {}
        self._starting: set[asyncio.Future[P]] = set()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """How many processes there are."""
        return len(self._busy) + len(self._free)

    def prepare(self) -> None:
        """Start a process, for the first call that comes."""
        # One, not the width: on a small head the second would take the core that the first call wants.
        self._start_one()

    async def enter(self, id: str) -> P | None:
        """Wait for a process for the call ``id``; return None where the call was turned away meanwhile.

        Raises:
            Exception: No process could be started.
        """
        turn: asyncio.Future[P | None] = asyncio.get_running_loop().create_future()
        self._waiting[id] = turn
        self._give()
        try:
            return await turn
        except asyncio.CancelledError:
            # Its turn may have come just before: nobody else would hand the process on.
            if turn.done() and not turn.cancelled() and turn.exception() is None and (process := turn.result()):
                self.leave(process)
            raise
        finally:
            self._waiting.pop(id, None)

    def leave(self, process: P) -> None:
        """A process has done its call."""
        del self._busy[process]
        self._add(process)

    def lose(self, process: P) -> None:
        """A process with a call is no more, or nobody knows what it does."""
        # Not replaced by itself: whether another one is wanted is seen by whoever waits.
        del self._busy[process]
        self._give()

    def turn_away(self, id: str) -> None:
        """The call ``id`` shall not wait any more; nothing where it does not."""
        turn = self._waiting.pop(id, None)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def close(self) -> None:
        """Start and end none any more."""
        for timer in [self._looking, *self._free.values()]:
            if timer is not None:
                timer.cancel()
        for start in self._starting:
            start.cancel()

    def _add(self, process: P) -> None:
        loop, is_spare = asyncio.get_running_loop(), len(self._free) >= self._width
        self._free[process] = loop.call_later(self._idle_s, self._retire, process) if is_spare else None
        self._give()

    def _retire(self, process: P) -> None:
        del self._free[process]
        self._end(process)

    def _give(self) -> None:
        while self._free and self._waiting:
            turn = self._waiting.pop(next(iter(self._waiting)))
            # Cancelled, and not yet gone from here.
            if turn.done():
                continue
            # The last that became free: what it needs is in the machine's caches still.
            process, timer = self._free.popitem()
            if timer is not None:
                timer.cancel()
            self._busy[process] = asyncio.get_running_loop().time()
            turn.set_result(process)
        self._grow()

    def _grow(self) -> None:
        """Start what is missing of the width; those that a long call holds do not count."""
        if not self._waiting:
            return
        now_s = asyncio.get_running_loop().time()
        turning = [since_s for since_s in self._busy.values() if now_s - since_s < self._patience_s]
        # Those that start count: a second passes until they are there, in which this is asked a hundred times.
        missing = self._width - len(turning) - len(self._starting)
        for _ in range(min(missing, len(self._waiting) - len(self._starting))):
            self._start_one()
        # When the next one counts as held: before, nothing changes but by ends, which come here by themselves.
        if turning and self._looking is None:
            delay_s = min(turning) + self._patience_s - now_s
            self._looking = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._looking = None
        self._grow()

    def _start_one(self) -> None:
        start: asyncio.Future[P] = asyncio.ensure_future(self._start())
        self._starting.add(start)
        start.add_done_callback(self._started)

    def _started(self, start: asyncio.Future[P]) -> None:
        self._starting.discard(start)
        if start.cancelled():
            return
        error = start.exception()
        if error is None:
            self._add(start.result())
            return
        # Whoever has waited longest is told: he would wait for ever. The next one is tried for anew.
        turn = self._waiting.pop(next(iter(self._waiting), ""), None)
        if turn is not None and not turn.done():
            turn.set_exception(error)
        self._grow()


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

    def __init__(self, head: str, folder: Path, printing: Printing, blobs: Blobs) -> None:
        """Begin without a process.

        Args:
            head: Name of this instance.
            folder: In which calls run.
            printing: Takes what they print.
            blobs: For large values.
        """
        self._head, self._folder, self._printing, self._blobs = head, folder, printing, blobs
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

    async def run(self, call: Call) -> tuple[bytes | Blob, bool]:
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

    async def _run_in(self, call: Call, process: _Process) -> tuple[bytes | Blob, bool, int]:
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
        line = await CallLine.to(path, self._blobs)
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

"""Calls on the head, in processes that take turns.

They are Ray actors that stay: a Ray task for each call asked for a process, connected it and
released it again, which took half of a short call's time. Ray itself would start a process for each
call, since calls take no CPU: a thousand short ones waited for processes that need a second of a
core each (154 calls a second). A fixed number of processes is no solution either, because calls may
wait for one another.
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

from raysm.core.protocol.names import LABEL_HOST
from raysm.features.session.cluster import work
from raysm.features.session.cluster.blobs import Blob, Blobs
from raysm.features.session.cluster.calls import Call, CallEnded, SignalRepeater
from raysm.features.session.cluster.outcomes import interrupted_outcome
from raysm.features.session.cluster.output import OutputReceiver
from raysm.features.session.cluster.work import CallSocket

P = TypeVar("P")

HELD_AFTER_S = 0.1
"""A process is held, and another may start, if its call takes longer than this: long compared to a
short call, short compared to the start of a process."""

IDLE_S = 30.0
"""A surplus process ends after this time without a call. Ray's own default is a second, so that it
would start new processes for each call of an interactive user."""


class ProcessPool(Generic[P]):
    """A pool of processes, and the queue of calls that wait for one.

    ``width`` processes take turns with short calls. A process whose call is long is held: it does
    not count any more, and another one may start.
    """

    def __init__(
        self,
        width: int,
        start: Callable[[], Awaitable[P]],
        end: Callable[[P], None],
        *,
        held_after_s: float = HELD_AFTER_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._width = width
        self._start = start
        self._end = end
        self._held_after_s = held_after_s
        self._idle_s = idle_s
        self._waiting: dict[str, asyncio.Future[P | None]] = {}
        # The time when each process got its call, the oldest first.
        self._busy: dict[P, float] = {}
        self._free: dict[P, asyncio.TimerHandle | None] = {}
        self._starting: set[asyncio.Future[P]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return len(self._busy) + len(self._free)

    def prepare(self) -> None:
        # Only one: on a small head, starting a second one would slow down the first call.
        self._start_one()

    async def acquire(self, id: str) -> P | None:
        """Wait for a process for the call ``id``.

        Returns:
            None if ``stop_waiting`` removed the call from the queue.
        """
        turn: asyncio.Future[P | None] = asyncio.get_running_loop().create_future()
        self._waiting[id] = turn
        self._assign()
        try:
            return await turn
        except asyncio.CancelledError:
            # If the call has just got a process, return it to the pool.
            if (
                turn.done()
                and not turn.cancelled()
                and turn.exception() is None
                and (process := turn.result())
            ):
                self.release(process)
            raise
        finally:
            self._waiting.pop(id, None)

    def release(self, process: P) -> None:
        del self._busy[process]
        self._add(process)

    def discard(self, process: P) -> None:
        # A new process starts only if a call waits for one.
        del self._busy[process]
        self._assign()

    def stop_waiting(self, id: str) -> None:
        turn = self._waiting.pop(id, None)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def close(self) -> None:
        for timer in [self._timer, *self._free.values()]:
            if timer is not None:
                timer.cancel()
        for start in self._starting:
            start.cancel()

    def _add(self, process: P) -> None:
        loop = asyncio.get_running_loop()
        is_spare = len(self._free) >= self._width
        self._free[process] = (
            loop.call_later(self._idle_s, self._retire, process) if is_spare else None
        )
        self._assign()

    def _retire(self, process: P) -> None:
        del self._free[process]
        self._end(process)

    def _assign(self) -> None:
        while self._free and self._waiting:
            turn = self._waiting.pop(next(iter(self._waiting)))
            if turn.done():  # cancelled
                continue
            # The process that became free last, whose memory is still in the CPU's caches.
            process, timer = self._free.popitem()
            if timer is not None:
                timer.cancel()
            self._busy[process] = asyncio.get_running_loop().time()
            turn.set_result(process)
        self._start_missing()

    def _start_missing(self) -> None:
        if not self._waiting:
            return
        now_s = asyncio.get_running_loop().time()
        turning = [
            since_s for since_s in self._busy.values() if now_s - since_s < self._held_after_s
        ]
        # Starting processes count, too, because they take about a second.
        missing = self._width - len(turning) - len(self._starting)
        for _ in range(min(missing, len(self._waiting) - len(self._starting))):
            self._start_one()
        # Grow again when the next process becomes held. Ends of calls call _start_missing anyway.
        if turning and self._timer is None:
            delay_s = min(turning) + self._held_after_s - now_s
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._start_missing()

    def _start_one(self) -> None:
        start: asyncio.Future[P] = asyncio.ensure_future(self._start())
        self._starting.add(start)
        start.add_done_callback(self._on_start)

    def _on_start(self, start: asyncio.Future[P]) -> None:
        self._starting.discard(start)
        if start.cancelled():
            return
        error = start.exception()
        if error is None:
            self._add(start.result())
            return
        # The oldest waiting call fails, so that calls do not wait forever. The next call tries
        # again.
        turn = self._waiting.pop(next(iter(self._waiting), ""), None)
        if turn is not None and not turn.done():
            turn.set_exception(error)
        self._start_missing()


FORCE_S = 5.0
LINGER_S = 0.5
REASON_S = 5.0
"""How long to wait until Ray reports why a process has ended."""

MIN_WIDTH = 2
MAX_WIDTH = 8
"""Limits of the number of processes for short calls: at least two, because a call may submit
another one and wait for it; at most eight, because each takes 100 MB and short calls need no
more."""

# Without retries by Ray, because a call must not be executed twice.
ACTOR: Any = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(work.CallProcess)


@dataclass(frozen=True, slots=True, eq=False)
class _Process:
    actor: Any
    pid: int
    line: CallSocket
    serving: Any
    """Ray's reference that is done when the process stops serving; an error says why."""
    gone: "asyncio.Future[None]"
    """Done when the process has ended, according to its pidfd."""


class CallProcesses:
    """Runs calls on the head; see ``Executor``."""

    def __init__(self, head: str, folder: Path, receiver: OutputReceiver, blobs: Blobs) -> None:
        self._head = head
        self._folder = folder
        self._receiver = receiver
        self._blobs = blobs
        self._running: dict[str, _Process] = {}
        self._lines: set[CallSocket] = set()
        self._watched: set[int] = set()
        self._numbers = itertools.count()
        width = max(MIN_WIDTH, min(MAX_WIDTH, os.cpu_count() or 1))
        self._pool: ProcessPool[_Process] = ProcessPool(width, self._start, self._end)
        self._repeater = SignalRepeater()

    def prepare(self) -> None:
        self._pool.prepare()

    def close(self) -> None:
        self._pool.close()
        for descriptor in list(self._watched):
            self._forget(descriptor)
        for line in self._lines:
            line.close()

    async def run(self, call: Call) -> tuple[bytes | Blob, bool]:
        with self._receiver.collect(call.id, call.output):
            try:
                process = await self._pool.acquire(call.id)
                if process is None:
                    raise CallEnded(interrupted_outcome(self._head))
                outcome, has_failed, messages = await self._run_in(call, process)
            except (RayError, ConnectionError) as error:
                raise call.explain_death(error, self._head) from error
            await self._receiver.drain(call.id, messages)
        return outcome, has_failed

    async def _run_in(self, call: Call, process: _Process) -> tuple[bytes | Blob, bool, int]:
        call.start()
        self._running[call.id] = process
        free = self._lose
        try:
            outcome = await process.line.call(call.id, call.body, call.request.name, self._head)
            free = self._pool.release
            return outcome
        except ConnectionError:
            # Ray knows the reason some milliseconds later. Without it, raise the ConnectionError.
            serving = asyncio.ensure_future(process.serving)
            await asyncio.wait([serving, process.gone], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([serving], timeout=REASON_S)
            if serving.done():
                serving.result()
            else:
                serving.cancel()
            raise
        finally:
            # Before run() waits for output, so that the next call can start and does not get this
            # call's signals.
            del self._running[call.id]
            free(process)

    def interrupt(self, call: Call) -> None:
        # A waiting call has no process to signal.
        self._pool.stop_waiting(call.id)
        until_s = time.monotonic() + FORCE_S
        self._repeater.start(call, lambda: self._signal(call.id, until_s))

    def _signal(self, id: str, until_s: float) -> None:
        process = self._running.get(id)
        # The call is in _running only while it has the process, so no other call gets the signal.
        if process is not None:
            number = signal.SIGINT if time.monotonic() < until_s else signal.SIGKILL
            # A signal, because ray.cancel does not interrupt a sleep.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    # Processes

    async def _start(self) -> _Process:
        # In the folder of the output's socket. A short name, because a socket's path has at most
        # 107 bytes.
        path = str(Path(self._receiver.socket).with_name(f"c{next(self._numbers)}"))
        actor = ACTOR.options(label_selector={LABEL_HOST: self._head}).remote(
            self._receiver.socket, str(self._folder), path
        )
        pid = await actor.pid.remote()
        serving = actor.serve.options(name="calls").remote()
        line = await CallSocket.connect(path, self._blobs)
        self._lines.add(line)
        return _Process(actor, pid, line, serving, self._watch_end(pid, line))

    def _watch_end(self, pid: int, line: CallSocket) -> "asyncio.Future[None]":
        """Return a future that is done when a process has ended; its line is aborted soon after."""
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()

        def ended() -> None:
            self._forget(descriptor)
            gone.set_result(None)
            loop.call_later(LINGER_S, line.abort)

        # Only Linux has pidfds; elsewhere the line alone shows the end.
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
        self._close_line(process)
        self._pool.discard(process)

    def _end(self, process: _Process) -> None:
        self._close_line(process)
        ray.kill(process.actor)

    def _close_line(self, process: _Process) -> None:
        self._lines.discard(process.line)
        process.line.close()

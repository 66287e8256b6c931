"""The calls of a session: execute each one once, and keep its outcome.

A client may ask for a call any number of times.

Everything here belongs to the server's event loop, except the output of calls.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from raysm.core.protocol import events
from raysm.core.protocol.parcels import SMALL_BYTES
from raysm.errors import InvalidConfig, InvalidRequest, RaysmError, SessionEnded
from raysm.features.session.cluster.blobs import Blob, Blobs
from raysm.features.session.cluster.outcomes import (
    describe_death,
    failed_outcome,
    interrupted_outcome,
    refused_outcome,
)
from raysm.features.session.cluster.output import Output
from raysm.features.session.protocol import (
    CALL,
    CELL,
    DONE,
    RUNNING,
    WAITING,
    CallRequest,
    CallStatus,
    Outcome,
    Versions,
)
from raysm.instance.work.report import EmitEvent

KEPT_CALLS = 2000
"""How many delivered calls are kept. The oldest are forgotten first, because a map has
thousands."""

CALL_SIGNAL_S = 0.5
MAX_WAIT_S = 25.0
"""Maximum time to hold an answer back (long poll): shorter than the timeouts of proxies."""

NO_SUCH_CALL = 404


class CallEnded(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Call:
    """One call; ``number`` is that of its metrics in the job's log.

    A ``number`` of None means that the metrics are the job's own.
    """

    def __init__(
        self,
        id: str,
        request: CallRequest,
        body: bytes | Blob,
        wake: Callable[[], None],
        number: int | None = None,
    ) -> None:
        self.id = id
        self.request = request
        self.body = body
        self.output = Output(wake, log_lines=self._log_lines)
        self._number = number
        self._params: Mapping[str, Any] | None = None
        self.done = asyncio.Event()
        self.is_cancelled = self.is_delivered = False
        self.ended_by = ""
        self._failed = False
        self._started_s: float | None = None
        self._took_s = 0.0
        self.outcome: bytes | Blob = b""

    def start(self) -> None:
        if self._started_s is None:
            self._started_s = time.monotonic()

    @property
    def content(self) -> bytes | memoryview:
        return self.body.content() if isinstance(self.body, Blob) else self.body

    def end(self, outcome: bytes | Blob, has_failed: bool) -> None:
        self._took_s = self._elapsed_s()
        # Emptying the body releases the arguments of the call, which may be large.
        self._failed = has_failed
        self.body = b""
        self.outcome = outcome
        self.done.set()

    def _log_lines(self, event: str, arguments: str) -> list[str]:
        # Called in the thread of a cell, or in the server's.
        metric = events.parse(event)
        if self._number is None or not isinstance(metric, events.Metric):
            return [event]
        lines = [events.line(replace(metric, call=self._number))]
        if self._params is None:
            self._params = json.loads(arguments or "{}")
            lines.insert(0, events.line(self._build_event("running")))
        return lines

    def _build_event(self, status: str, reason: str = "") -> events.SessionCall:
        number = self._number or 0
        params = self._params or {}
        seconds = self._elapsed_s()
        return events.SessionCall(
            number=number,
            name=self.request.name,
            status=status,
            params=params,
            reason=reason,
            seconds=seconds,
        )

    def build_end_event(self) -> events.SessionCall | None:
        """Return the event of its end, None if it has reported no metrics."""
        if self._params is None:
            return None
        error = (
            Outcome.decode(self.outcome).error
            if self._failed and isinstance(self.outcome, bytes)
            else None
        )
        if error is not None and error.cancelled:
            return self._build_event("stopped")
        return self._build_event(
            "failed" if self._failed else "done", "" if error is None else error.headline
        )

    @property
    def status(self) -> CallStatus:
        is_done = self.done.is_set()
        if is_done:
            state = DONE
        else:
            state = WAITING if self._started_s is None else RUNNING
        return CallStatus(
            id=self.id,
            kind=self.request.kind,
            name=self.request.name,
            state=state,
            failed=self._failed,
            output_end=self.output.end,
            took_s=self._took_s if is_done else self._elapsed_s(),
            bytes=len(self.outcome),
        )

    def _elapsed_s(self) -> float:
        return 0.0 if self._started_s is None else time.monotonic() - self._started_s

    def explain_death(self, error: Exception, host: str) -> CallEnded:
        """Return the end of a call whose process is gone, as Ray's error describes it."""
        if self.is_cancelled:
            return CallEnded(interrupted_outcome(host))
        return CallEnded(
            failed_outcome("WorkerDied", describe_death(self.request.name, error), host)
        )


class Executor(Protocol):
    async def run(self, call: Call) -> "tuple[bytes | Blob, bool]":
        """Execute a call; return its encoded outcome, and whether that is a failure.

        Raises:
            CallEnded: It was interrupted, or its process died.
            RaysmError: It could not be executed.
        """

    def interrupt(self, call: Call) -> None:
        """Interrupt a running call without waiting for its end."""


class Calls:
    def __init__(
        self,
        executors: Mapping[str, Executor],
        blobs: Blobs,
        active: Callable[[float], None],
        emit: EmitEvent,
    ) -> None:
        # active() is called with the monotonic time when a call arrives or ends.
        self._executors = executors
        self._blobs = blobs
        self._active = active
        self._emit = emit
        self._numbers = itertools.count(1)
        self._calls: dict[str, Call] = {}
        # Only ids. A client that asks too late gets an error, and does not send the call again.
        self._forgotten: set[str] = set()
        self._delivered: deque[Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing = ""

    @property
    def busy(self) -> int:
        return len(self._tasks)

    def list_all(self) -> list[Call]:
        return list(self._calls.values())

    def list_running(self) -> list[Call]:
        return [call for call in self._calls.values() if not call.done.is_set()]

    def get(self, id: str) -> Call | None:
        if id in self._forgotten:
            raise InvalidRequest(
                f"the outcome of the call {id} was delivered, and is not kept any more"
            )
        return self._calls.get(id)

    def start_once(
        self, id: str, request: CallRequest, body: bytes | None, wake: Callable[[Call], None]
    ) -> Call:
        """Start a call, unless a call with this id exists, and return it."""
        earlier = self.get(id)
        # The client repeated its request because the answer was lost.
        if earlier is not None:
            return earlier
        if self.closing:
            raise SessionEnded(f"the session is closing ({self.closing}); start another one")
        self._check(request)
        number = next(self._numbers) if request.kind in (CALL, CELL) else None
        call = Call(
            id, request, self._blobs.take(id) if body is None else body, lambda: wake(call), number
        )
        self._calls[id] = call
        self._active(time.monotonic())
        task = asyncio.create_task(self._execute_call(call))
        # asyncio holds tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return call

    def _check(self, request: CallRequest) -> None:
        if request.kind not in self._executors:
            raise InvalidRequest(
                f"there is no call of the kind {request.kind!r}; "
                f"known are {', '.join(self._executors)}"
            )
        versions = Versions.here()
        if request.python and request.python != versions.pickle_version:
            raise InvalidRequest(
                f"{request.name} was pickled by Python {request.python}, "
                f"and the session runs {versions.python}: it may read it wrongly; "
                f"use Python {versions.pickle_version}, or send source: exec(…)"
            )

    async def _execute_call(self, call: Call) -> None:
        try:
            if call.is_cancelled:
                raise CallEnded(interrupted_outcome())
            outcome, has_failed = await self._executors[call.request.kind].run(call)
            if isinstance(outcome, bytes) and len(outcome) > SMALL_BYTES:  # from another instance
                outcome = await asyncio.to_thread(self._blobs.keep, [outcome])
            # A function that caught the interrupt and returned keeps its value.
            if call.ended_by and has_failed and isinstance(outcome, bytes):
                cause = Outcome.decode(outcome).error
                if cause is not None and cause.cancelled:
                    raise _build_early_end(call)
        except (
            Exception,
            asyncio.CancelledError,
        ) as error:  # without an outcome the client would wait forever
            outcome = _failure(call, error).encode()
            has_failed = True
        call.end(outcome, has_failed)
        self._active(time.monotonic())
        if (ending := call.build_end_event()) is not None:
            self._emit(ending)

    def deliver(self, id: str) -> None:
        call = self._calls.get(id)
        if call is None or call.is_delivered or not call.done.is_set():
            return
        call.is_delivered = True
        self._delivered.append(call)
        if len(self._delivered) > KEPT_CALLS:
            oldest = self._delivered.popleft()
            del self._calls[oldest.id]
            self._forgotten.add(oldest.id)

    def interrupt(self, call: Call) -> None:
        if call.done.is_set():
            return
        # Set first: executors do not start a cancelled call.
        call.is_cancelled = True
        self._executors[call.request.kind].interrupt(call)

    async def close(self, why: str, grace_s: float) -> None:
        """Accept no more calls, and interrupt the running ones.

        Calls that still run after ``grace_s`` are abandoned.
        """
        self.closing = why
        for call in self.list_running():
            call.ended_by = why
            self.interrupt(call)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _failure(call: Call, error: BaseException) -> Outcome:
    match error:
        case CallEnded(outcome=outcome) if not (
            call.ended_by and outcome.error and outcome.error.cancelled
        ):
            return outcome
        # close() has interrupted or abandoned the call.
        case CallEnded() | asyncio.CancelledError():
            return refused_outcome(_build_early_end(call))
        case RaysmError():  # the client raises the same error
            return refused_outcome(error)
        case _:
            return failed_outcome(type(error).__name__, str(error))


def _build_early_end(call: Call) -> SessionEnded:
    return SessionEnded(f"the session ended before {call.request.name} did: {call.ended_by}")


class SignalRepeater:
    """Repeats signals to interrupted calls until they end; belongs to one event loop."""

    def __init__(self) -> None:
        # asyncio holds tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, call: Call, signal_call: Callable[[], None]) -> None:
        task = asyncio.create_task(self._repeat(call, signal_call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _repeat(self, call: Call, signal_call: Callable[[], None]) -> None:
        # Without a limit: signal_call() itself decides when to use a stronger signal.
        while not call.done.is_set():
            signal_call()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(call.done.wait(), CALL_SIGNAL_S)


def parse_seconds(wait: object) -> float:
    try:
        return float(str(wait))
    except ValueError as error:
        raise InvalidRequest(f"wait is a number of seconds, got {wait!r}") from error


def choose_http_status(error: Exception) -> int:
    match error:
        case SessionEnded():
            return 410
        case InvalidRequest() | InvalidConfig():
            return 400
        case _:
            return 500

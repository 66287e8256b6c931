"""The calls of a session: each is executed once, however often a client asks for it, and its outcome is kept.

Everything here belongs to the server's event loop, except what a call prints.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from raysm.contract.parcels import SMALL_BYTES
from raysm.contract.session import DONE, RUNNING, WAITING, CallRequest, CallStatus, Outcome, Versions
from raysm.errors import InvalidConfig, InvalidRequest, RaysmError, SessionEnded
from raysm.workloads.session.blobs import Blob, Blobs
from raysm.workloads.session.outcomes import failed, interrupted, refused
from raysm.workloads.session.output import Output

__all__ = ["Call", "Calls", "Executor", "Insisting", "NO_SUCH_CALL", "answer", "seconds_of", "status_of"]

KEPT_CALLS = 2000
"""Calls whose outcome a client has got are forgotten beyond this many, the oldest first: a map has thousands."""


class Call:
    """One call, from when it was asked for.

    Attributes:
        id: As its client named it.
        request: What is asked for.
        body: The pickle or the source, as bytes or as a Blob; emptied once it is done.
        output: What it prints.
        done: Set when it has its outcome.
        is_cancelled: Whether somebody wants it to end.
        is_delivered: Whether a client has got its outcome.
        ended_by: Why the session ends, where that is what ends the call.
    """

    def __init__(self, id: str, request: CallRequest, body: bytes | Blob, wake: Callable[[], None]) -> None:
        self.id, self.request, self.body = id, request, body
        self.output = Output(wake)
        self.done = asyncio.Event()
        self.is_cancelled = self.is_delivered = False
        self.ended_by = ""
        self._failed = False
        self._began_s: float | None = None
        self._took_s = 0.0
        self.outcome: bytes | Blob = b""

    def begin(self) -> None:
        """It runs from now on."""
        if self._began_s is None:
            self._began_s = time.monotonic()

    @property
    def content(self) -> bytes | memoryview:
        """The pickle or the source. To write to that of a blob changes a copy."""
        return self.body.content() if isinstance(self.body, Blob) else self.body

    def end(self, outcome: bytes | Blob, has_failed: bool) -> None:
        """Mark it as done.

        Args:
            outcome: Encoded.
            has_failed: Whether the outcome is a failure.
        """
        self._took_s = self._elapsed_s()
        # The body is released: the arguments of a call may be as large as the outcome.
        self._failed, self.body, self.outcome = has_failed, b"", outcome
        self.done.set()

    @property
    def status(self) -> CallStatus:
        """How it is."""
        is_done = self.done.is_set()
        return CallStatus(
            id=self.id,
            kind=self.request.kind,
            name=self.request.name,
            state=DONE if is_done else WAITING if self._began_s is None else RUNNING,
            failed=self._failed,
            output_end=self.output.end,
            took_s=self._took_s if is_done else self._elapsed_s(),
            bytes=len(self.outcome),
        )

    def _elapsed_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s


class Executor(Protocol):
    """Does the calls of some kinds."""

    async def run(self, call: Call) -> "tuple[bytes | Blob, bool]":
        """Do one; return its outcome, encoded, and whether it is a failure."""

    def interrupt(self, call: Call) -> None:
        """Have one end that runs; it ends by itself later."""


class Calls:
    """All calls of the session."""

    def __init__(self, executors: Mapping[str, Executor], blobs: Blobs, active: Callable[[float], None]) -> None:
        """Begin with none.

        Args:
            executors: By kind of call.
            blobs: For large outcomes.
            active: Called with the time, by the monotonic clock, whenever a call comes or ends.
        """
        self._executors, self._blobs, self._active = executors, blobs, active
        self._calls: dict[str, Call] = {}
        # Ids alone: a client that asks late is told that the outcome is gone, and does not send the call again.
        self._forgotten: set[str] = set()
        self._delivered: deque[Call] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing = ""

    @property
    def busy(self) -> int:
        """How many wait or run."""
        return len(self._tasks)

    def every(self) -> list[Call]:
        """Return all that are known, in the order in which they came."""
        return list(self._calls.values())

    def running(self) -> list[Call]:
        """Return those that are not done."""
        return [call for call in self._calls.values() if not call.done.is_set()]

    def of(self, client: str) -> list[Call]:
        """Return the calls of one client."""
        return [call for call in self._calls.values() if call.request.client == client]

    def get(self, id: str) -> Call | None:
        """Return the call of that id; None where nobody has asked for it.

        Raises:
            InvalidRequest: Its outcome was delivered long ago, and is not kept any more.
        """
        if id in self._forgotten:
            raise InvalidRequest(f"the outcome of the call {id} was delivered, and is not kept any more")
        return self._calls.get(id)

    def ask(self, id: str, request: CallRequest, body: bytes | None, wake: Callable[[Call], None]) -> Call:
        """Return the call of that id, which begins unless it is there already.

        Args:
            id: Chosen by the client.
            request: What is asked for.
            body: The pickle or the source; None if it came by a connection of its own.
            wake: Called in any thread, when it has printed something.

        Raises:
            InvalidRequest: It cannot be had.
            SessionEnded: The session is closing.
        """
        earlier = self.get(id)
        # A request that was repeated, since its answer was lost: executed once, answered as often as asked.
        if earlier is not None:
            return earlier
        if self.closing:
            raise SessionEnded(f"the session is closing ({self.closing}); start another one")
        self._check(request)
        call = Call(id, request, self._blobs.take(id) if body is None else body, lambda: wake(call))
        self._calls[id] = call
        self._active(time.monotonic())
        task = asyncio.create_task(self._carry_out(call))
        # asyncio holds tasks weakly: one that nobody else holds may be collected while it waits.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return call

    def _check(self, request: CallRequest) -> None:
        if request.kind not in self._executors:
            raise InvalidRequest(
                f"there is no call of the kind {request.kind!r}; known are {', '.join(self._executors)}"
            )
        versions = Versions.here()
        if request.python and request.python != versions.pickles:
            raise InvalidRequest(
                f"{request.name} was pickled by Python {request.python}, and the session runs {versions.python}: it "
                f"may read it wrongly; use Python {versions.pickles}, or send source: exec(…)"
            )

    async def _carry_out(self, call: Call) -> None:
        # Checked when it was asked for: a kind that nobody does is refused there.
        executor = self._executors[call.request.kind]
        outcome: bytes | Blob
        try:
            if call.is_cancelled:
                outcome, has_failed = interrupted().encode(), True
            else:
                outcome, has_failed = await executor.run(call)
            # A function that caught the interrupt, and returned, has its value in any case.
            if call.ended_by and has_failed and _is_cancelled(outcome):
                outcome = refused(_too_early(call)).encode()
        # Its grace is over: whoever waits for it gets an outcome all the same.
        except asyncio.CancelledError:
            outcome, has_failed = refused(_too_early(call)).encode(), True
        except RaysmError as error:  # what was asked for cannot be: it is to be the same error there
            outcome, has_failed = refused(error).encode(), True
        except Exception as error:  # a call that has no outcome would be waited for for ever
            outcome, has_failed = failed(type(error).__name__, str(error)).encode(), True
        if isinstance(outcome, bytes) and len(outcome) > SMALL_BYTES:  # it came from another instance
            try:
                outcome = await asyncio.to_thread(self._blobs.keep, [outcome])
            except OSError as error:  # the disk is full
                message = f"its outcome of {len(outcome):,} bytes cannot be kept on the head: {error}"
                outcome, has_failed = failed(type(error).__name__, message).encode(), True
            except asyncio.CancelledError:  # the session ends
                outcome, has_failed = refused(_too_early(call)).encode(), True
        call.end(outcome, has_failed)
        self._active(time.monotonic())

    def deliver(self, id: str) -> None:
        """A client has got the outcome of a call; of very many, the oldest are forgotten."""
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
        """Have a call end; one that is done stays as it is."""
        if call.done.is_set():
            return
        # Before the executor is asked: a call that has not begun sees it when its turn comes.
        call.is_cancelled = True
        self._executors[call.request.kind].interrupt(call)

    async def close(self, why: str, grace_s: float) -> None:
        """Take no more calls; those that run are interrupted, and have their outcome.

        Args:
            why: For people.
            grace_s: How long calls may take to end before they are given up.
        """
        self.closing = self.closing or why
        for call in self.running():
            call.ended_by = self.closing
            self.interrupt(call)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _is_cancelled(outcome: bytes | Blob) -> bool:
    error = None if isinstance(outcome, Blob) else Outcome.decode(outcome).error
    return error is not None and error.cancelled


def _too_early(call: Call) -> SessionEnded:
    return SessionEnded(f"the session ended before {call.request.name} did: {call.ended_by}")


SIGNAL_S = 0.5
"""Between two strikes: a second is what the end of a cell or a call may take."""


class Insisting:
    """The calls that are to end; in one event loop."""

    def __init__(self) -> None:
        # asyncio holds tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, call: Call, strike: Callable[[], None]) -> None:
        """Call ``strike`` now, and until the call has ended."""
        task = asyncio.create_task(self._insist(call, strike))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _insist(self, call: Call, strike: Callable[[], None]) -> None:
        # No end of its own: who strikes decides when to strike harder.
        while not call.done.is_set():
            strike()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(call.done.wait(), SIGNAL_S)


MOST_WAIT_S = 25.0
"""For which a client may wait for an outcome before it asks again: less than any proxy's patience."""

NO_SUCH_CALL = 404
"""Its own status: a client whose question was lost on the way asks once more, with all of it."""


def seconds_of(wait: object) -> float:
    """Return for how long a client waits for an outcome, seconds, as it came by either way.

    Raises:
        InvalidRequest: It is no number.
    """
    try:
        return float(str(wait))
    except ValueError as error:
        raise InvalidRequest(f"wait is a number of seconds, got {wait!r}") from error


async def answer(call: Call, wait_s: float) -> tuple[CallStatus, bytes | None]:
    """Wait for a call's end, but not for long; return how it is then, and its outcome.

    Args:
        call: Whose.
        wait_s: For so long; then it is answered all the same, and the client asks again.

    Returns:
        Its status, and its outcome: empty while it runs, None if it is large and travels by a connection of its own.
    """
    # Most short calls are done by now: a wait costs a timer and a switch of tasks.
    if not call.done.is_set():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(call.done.wait(), min(wait_s, MOST_WAIT_S))
    return call.status, None if isinstance(call.outcome, Blob) else call.outcome


def status_of(error: Exception) -> int:
    """Return HTTP's status for what a client asked that cannot be."""
    # SessionEnded first: to a client it is no refusal of what it asked, but the end of all asking.
    match error:
        case SessionEnded():
            return 410
        case InvalidRequest() | InvalidConfig():
            return 400
        case _:
            return 500

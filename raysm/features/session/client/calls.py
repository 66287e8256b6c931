"""A call of a session as a future: its value, its exception and its output."""

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import pickle
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TextIO, TypeVar

from raysm.core.client.units import deadline
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.protocol.modules import needs_module
from raysm.core.protocol.parcels import Piece, load
from raysm.core.request.codec import from_json
from raysm.errors import CallCancelled, CallFailed, NotDone, RaysmError
from raysm.features.session.client.cell_result import (
    collect_result,
    show_display,
)
from raysm.features.session.client.wire import NoSuchCall, Wire
from raysm.features.session.protocol import DISPLAY, DONE, WAITING, CallRequest, CallStatus, Outcome

_log = logging.getLogger("raysm")

T = TypeVar("T")

# Long poll: below the minute after which proxies cut a silent request, and below the wire's READ_S.
LONG_POLL_S = 20.0
"""How long the server may hold an answer back until the call is done."""

LATE_S = 0.5
"""How long to wait for output that is still on the WebSocket when the outcome has arrived."""

# The request is sent on the same connection and arrives within milliseconds.
RESEND_S = 0.02
"""Pause between attempts to interrupt a call whose request has not arrived yet."""

KEPT_CHARACTERS = 32 << 20
"""How much of a cell's output is kept for its result: the last characters."""

CTRL_C_GRACE_S = 10.0
"""How long a call that Ctrl-C interrupts may take to end."""

CTRL_C_POLL_S = 1.0


def load_value(outcome: Outcome, name: str, loads: Callable[..., Any] = pickle.loads) -> Any:
    # None is sent as an empty pickle.
    if not len(outcome.pickled):
        return None
    try:
        return load(outcome.pickled, loads)
    except ModuleNotFoundError as error:
        raise CallFailed(
            f"the value of {name} {needs_module(error.name)}", error_type=type(error).__name__
        ) from error
    except Exception as error:  # unpickling runs the value's own code
        raise CallFailed(
            f"the value of {name} cannot be read here: {type(error).__name__}: {error}; return "
            "plain data, or install here what its class needs",
            error_type=type(error).__name__,
        ) from error


def load_error(
    outcome: Outcome, name: str, session: str, loads: Callable[..., Any] = pickle.loads
) -> BaseException:
    """Return the exception of a failed call, with the remote traceback as a note.

    It is the original exception if that can be loaded here, and otherwise CallFailed.
    """
    error = outcome.error
    assert error is not None
    if error.cancelled:
        return CallCancelled(f"{name} was interrupted")
    where = f"in the session {session}" + (f" on {error.host}" if error.host else "")
    note = f"{where}:\n{error.traceback.rstrip()}" if error.traceback else f"raised {where}"
    try:
        raised = load(outcome.pickled, loads) if len(outcome.pickled) else None
    except Exception:  # its class may be missing here, or need other arguments
        raised = None
    # A remote SystemExit or KeyboardInterrupt must not end this program.
    if not isinstance(raised, Exception):
        text = f"{error.headline}\n\n{note}" if error.traceback else error.headline
        return CallFailed(text, error_type=error.type, remote_traceback=error.traceback)
    # Refusals of raysm itself have no traceback.
    if error.traceback:
        raised.add_note(note)
    return raised


@dataclass(frozen=True, slots=True)
class CallContext:
    """What all calls of one connection share."""

    loop: LoopThread
    wire: Wire
    session: str
    loads: Callable[..., Any] = pickle.loads


class Call(Generic[T]):
    """The future of one call.

    Attributes:
        id: The call's id in the session.
        name: Name for messages, usually the function's.
    """

    def __init__(
        self,
        id: str,
        name: str,
        context: CallContext,
        *,
        is_cell: bool = False,
        has_ended: bool = False,
    ) -> None:
        # is_cell: The value is a CellResult. has_ended: The session has reported that the call is
        # done.
        self.id = id
        self.name = name
        self._has_ended = has_ended
        self._context = context
        self._ended: concurrent.futures.Future[tuple[CallStatus, Outcome]] = (
            concurrent.futures.Future()
        )
        self._news: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._pieces: deque[tuple[str, str]] | None = deque() if is_cell else None
        self._kept = 0
        # Characters of output received so far. Identifies pieces that a new connection sends again.
        self._position = 0
        self._has_more_output = asyncio.Event()
        self._is_sent = False

    # In the loop of the connection

    async def send(self, request: CallRequest | None, body: Sequence[Piece] = ()) -> None:
        self._is_sent = True
        try:
            status, outcome = await self._ask(request, body)
            while status.state != DONE:
                # No time limit, because a call may run for days. The server answers each request
                # within LONG_POLL_S.
                status, outcome = await self._ask()
            await self._await_output(status.output_end)
        except asyncio.CancelledError:
            self._fail(
                CallCancelled(
                    f"{self.name}: the connection was closed; the session may still work on it"
                )
            )
            raise
        except Exception as error:  # raised by result()
            self._fail(error)
        else:
            self._news.put(None)
            self._ended.set_result((status, outcome))
            await self._context.wire.send_message({"delivered": self.id})

    def _fail(self, error: BaseException) -> None:
        self._news.put(None)
        self._ended.set_exception(error)

    async def _ask(
        self, request: CallRequest | None = None, body: Sequence[Piece] = ()
    ) -> tuple[CallStatus, Outcome]:
        head, outcome = await self._context.wire.call(self.id, LONG_POLL_S, request, body)
        status: CallStatus = from_json(CallStatus, head, "call")
        return status, Outcome.decode(outcome) if len(outcome) else Outcome()

    @property
    def _path(self) -> str:
        return f"/calls/{self.id}"

    def on_output(self, start: int, stream: str, text: str) -> None:
        # After a broken connection the server sends the output again from its beginning.
        if start + len(text) <= self._position:
            return
        # The piece may have grown since an earlier connection delivered its first part.
        piece = (stream, text[max(0, self._position - start) :])
        self._news.put(piece)
        if self._pieces is not None:
            self._pieces.append(piece)
            self._kept += len(piece[1])
            while self._kept > KEPT_CHARACTERS and len(self._pieces) > 1:
                self._kept -= len(self._pieces.popleft()[1])
        self._position = start + len(text)
        self._has_more_output.set()

    async def _await_output(self, end: int) -> None:
        # The server sends outcomes and output independently, so the outcome may arrive first.
        until_s = time.monotonic() + LATE_S
        while self._position < end and time.monotonic() < until_s:
            self._has_more_output.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_more_output.wait(), until_s - time.monotonic())
        if self._position < end:
            try:
                answer = await self._context.wire.json(
                    "GET", f"{self._path}/output", params={"from": self._position}
                )
            except RaysmError as error:
                # The session has ended, say. The outcome is here, and matters more.
                _log.warning("the end of the output of %s is lost: %s", self.name, error)
                return
            for piece in answer["pieces"]:
                self.on_output(piece["start"], piece["stream"], piece["text"])

    # For the user

    def result(self, timeout: float | None = None) -> T:
        """Wait for the value of the call; Ctrl-C stops the waiting, not the call.

        Args:
            timeout: Seconds to wait; None waits without limit.

        Raises:
            InvalidRequest: ``timeout`` is not a number of seconds.
            NotDone: A TimeoutError: the call is still running after ``timeout`` seconds.
            CallCancelled: The call was interrupted.
            CallFailed: The call raised an exception that cannot be loaded here.
            Exception: The exception of the call, with the remote traceback as a note.
        """
        _, outcome = self._await(timeout)
        if outcome.error is not None:
            raise load_error(outcome, self.name, self._context.session, self._context.loads)
        if self._pieces is not None:
            return collect_result(list(self._pieces), outcome)  # type: ignore[return-value]
        value: T = load_value(outcome, self.name, self._context.loads)
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the call and return its exception, or None if it succeeded."""
        deadline(timeout)
        try:
            _, outcome = self._await(timeout)
        except NotDone:
            raise
        except Exception as error:  # the session has ended, say
            return error
        if outcome.error is None:
            return None
        return load_error(outcome, self.name, self._context.session, self._context.loads)

    def _await(self, timeout: float | None) -> tuple[CallStatus, Outcome]:
        # Checks the timeout: threading would fail with an obscure TypeError.
        deadline(timeout)
        try:
            return self._ended.result(timeout)
        except TimeoutError as error:
            # If the future is done, the call itself failed with a TimeoutError.
            if self._ended.done():
                raise
            raise NotDone(
                f"{self.name} has not ended within {timeout:g} s; it keeps running"
            ) from error

    def wait(self, timeout: float | None) -> bool:
        """Wait until the call has ended; return False if it still runs after ``timeout`` s."""
        deadline(timeout)
        return bool(concurrent.futures.wait([self._ended], timeout).done)

    def outcome(self) -> tuple[CallStatus, Outcome]:
        """Wait for the status and the outcome of the call, still encoded."""
        return self._await(None)

    def done(self) -> bool:
        """Return whether the call has ended, according to the last news from the session."""
        return self._has_ended or self._ended.done()

    def is_over(self) -> bool:
        """Return whether the outcome has arrived, so that ``result`` does not wait."""
        return self._ended.done()

    def cancelled(self) -> bool:
        """Return whether the call ended because it was interrupted."""
        if not self._ended.done() or self._ended.exception() is not None:
            return False
        error = self._ended.result()[1].error
        return error is not None and error.cancelled

    def cancel(self) -> bool:
        """Interrupt the call; return False if it had ended already."""
        if self.done():
            return False
        return self._context.loop.run(self._interrupt())

    async def _interrupt(self) -> bool:
        while not self._ended.done():
            try:
                await self._context.wire.request("POST", f"{self._path}/interrupt")
                return True
            except NoSuchCall:
                if not self._is_sent:
                    return False
                # The request with the call has not arrived yet: try again.
                await asyncio.sleep(RESEND_S)
        return False

    @property
    def status(self) -> CallStatus:
        """The current status of the call."""
        if self._ended.done() and self._ended.exception() is None:
            return self._ended.result()[0]
        try:
            answer = self._context.loop.run(self._context.wire.json("GET", self._path))
        except NoSuchCall:  # the request with the call has not arrived yet
            return CallStatus(id=self.id, kind="", name=self.name, state=WAITING)
        status: CallStatus = from_json(CallStatus, answer, "call")
        return status

    def logs(self) -> str:
        """Return the output of the call so far, at most the last four million characters."""
        try:
            answer = self._context.loop.run(self._context.wire.json("GET", f"{self._path}/output"))
        except NoSuchCall:
            return ""
        pieces = [(piece["stream"], piece["text"]) for piece in answer["pieces"]]
        return collect_result(pieces, Outcome()).text

    def add_done_callback(self, fn: "Callable[[Call[T]], object]") -> None:
        """Call ``fn(call)`` in another thread when the call ends, or now if it has ended."""
        # Not in the connection's thread, where a call of the session would wait for itself.
        self.on_end(
            lambda call: threading.Thread(
                target=fn, args=(call,), name="raysm callback", daemon=True
            ).start()
        )

    def on_end(self, fn: "Callable[[Call[T]], object]") -> None:
        self._ended.add_done_callback(lambda _: fn(self))

    def show(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        display: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Show the output of the call until it ends; Ctrl-C interrupts the call.

        Args:
            out: Stream for the call's stdout; None is this process's.
            err: Stream for the call's stderr; None is this process's.
            display: Handles each display; None shows it in the notebook, or prints its text.
        """
        try:
            while (piece := self._next()) is not None:
                if piece[0] == DISPLAY:
                    bundle = json.loads(piece[1])
                    show_display(bundle, out or sys.stdout) if display is None else display(bundle)
                    continue
                # Looked up each time, because notebooks and tests replace the streams.
                stream = (out or sys.stdout) if piece[0] == "stdout" else (err or sys.stderr)
                stream.write(piece[1])
                stream.flush()
            # A second show() must not block.
            self._news.put(None)
        except KeyboardInterrupt:
            with contextlib.suppress(RaysmError):
                self.cancel()
            # Its last output must not appear below the user's next command.
            self.wait(CTRL_C_GRACE_S)
            raise

    def _next(self) -> tuple[str, str] | None:
        while True:
            # Python notices a Ctrl-C that comes just before this wait only after it, so the wait is
            # short.
            with contextlib.suppress(queue.Empty):
                return self._news.get(timeout=CTRL_C_POLL_S)

    def __repr__(self) -> str:
        if self._has_ended:  # the outcome, which is on its way, says whether it was cancelled
            self.wait(LATE_S)
        if self.cancelled():
            state = "cancelled"
        elif not self.done():
            state = "not done"
        elif self.is_over() and self.exception() is not None:
            state = "failed"
        else:
            state = "done"
        return f"<call {self.name} of the session {self._context.session}: {state}>"

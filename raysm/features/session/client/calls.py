"""Calls of a session as futures: their values, exceptions and output, one or many at once."""

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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TextIO, TypeVar

from raysm.core.client.units import deadline
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.protocol.modules import needs_module
from raysm.core.protocol.parcels import Piece, load
from raysm.core.request.codec import from_json
from raysm.errors import CallCancelled, CallFailed, InvalidRequest, NotDone, RaysmError
from raysm.features.session.client.wire import NoSuchCall, Wire
from raysm.features.session.protocol import DISPLAY, DONE, WAITING, CallRequest, CallStatus, Outcome

_log = logging.getLogger("raysm")


class Shown:
    """The displayed value of a cell's last line: text by ``repr``, rich output in a notebook.

    Attributes:
        data: The representations by MIME type; pictures in base64.
        metadata: IPython's metadata by MIME type.
    """

    def __init__(self, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        self.data = dict(data)
        self.metadata = dict(metadata)

    def __repr__(self) -> str:
        return str(self.data.get("text/plain", ""))

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.data, self.metadata


@dataclass(frozen=True, slots=True)
class CellResult:
    """The output of a cell. A notebook displays it as its ``result``."""

    outputs: list[dict[str, Any]]
    """All output in order, in nbformat's types ``stream``, ``display_data`` and
    ``execute_result``."""
    result: Shown | None
    """The displayed value of the last line; None if it has none."""

    @property
    def text(self) -> str:
        """All output as plain text."""
        return "".join(
            each["text"]
            if each["output_type"] == "stream"
            else f"{each['data'].get('text/plain', '')}\n"
            for each in self.outputs
        )

    def __repr__(self) -> str:
        return "" if self.result is None else repr(self.result)

    def _ipython_display_(self) -> None:
        if self.result is not None:
            show_display({"data": self.result.data, "metadata": self.result.metadata}, sys.stdout)


def collect_result(pieces: Iterable[tuple[str, str]], outcome: Outcome) -> CellResult:
    outputs: list[dict[str, Any]] = []
    is_to_clear = False
    for stream, text in pieces:
        bundle = json.loads(text) if stream == DISPLAY else {}
        if bundle.get("clear"):  # when the next output comes
            is_to_clear = True
            continue
        if is_to_clear or "clear" in bundle:
            outputs = []
            is_to_clear = False
        if "clear" in bundle:
            continue
        if bundle.get("update"):
            id = bundle.get("transient", {}).get("display_id")
            for each in outputs:
                if each.get("transient", {}).get("display_id") == id:
                    each.update(data=bundle["data"], metadata=bundle["metadata"])
        elif bundle:
            shown = {name: bundle[name] for name in ("data", "metadata", "transient")}
            outputs.append({"output_type": "display_data", **shown})
        elif outputs and outputs[-1].get("name") == stream:
            outputs[-1]["text"] += text
        else:
            outputs.append({"output_type": "stream", "name": stream, "text": text})
    for each in outputs:
        each.pop("transient", None)
    if not outcome.shown:
        return CellResult(outputs, None)
    shown = {"data": dict(outcome.shown), "metadata": dict(outcome.metadata)}
    outputs.append({"output_type": "execute_result", "execution_count": None, **shown})
    return CellResult(outputs, Shown(outcome.shown, outcome.metadata))


def show_display(bundle: Mapping[str, Any], out: TextIO) -> None:
    """Show rich output in the notebook, or write its text to ``out`` outside of a notebook."""
    # A notebook has imported IPython already; anywhere else the import is not needed.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and "clear" in bundle:
        shell.display_pub.clear_output(wait=bundle["clear"])
    elif shell is not None:
        how = {"transient": bundle.get("transient") or {}, "update": bundle.get("update", False)}
        shell.display_pub.publish(bundle["data"], bundle["metadata"], **how)
    elif "clear" not in bundle and not bundle.get("update"):
        out.write(f"{bundle['data'].get('text/plain', '')}\n")
        out.flush()


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


T = TypeVar("T")

# Long poll: below the minute after which proxies cut a silent request, and below the wire's READ_S.
WAIT_S = 20.0
"""How long the server may hold an answer back until the call is done."""

LATE_S = 0.5
"""How long to wait for output that is still on the WebSocket when the outcome has arrived."""

# The request is sent on the same connection and arrives within milliseconds.
RESEND_S = 0.02
"""Pause between attempts to interrupt a call whose request has not arrived yet."""

KEPT_CHARACTERS = 32 << 20
"""How much of a cell's output is kept for its result: the last characters."""

INTERRUPTED_S = 10.0
CTRL_C_POLL_S = 1.0


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
                # within WAIT_S.
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
        head, outcome = await self._context.wire.call(self.id, WAIT_S, request, body)
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
            self.wait(INTERRUPTED_S)
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


BAR_CHARACTERS = 30
REDRAW_S = 0.2


def as_completed(calls: Iterable[Call[T]], timeout: float | None = None) -> Iterator[Call[T]]:
    """Yield calls as they end, whether they succeed or fail.

    Args:
        calls: Calls of any sessions.
        timeout: Seconds for all of them; None waits without limit.

    Raises:
        InvalidRequest: An element is not a call.
        NotDone: A TimeoutError: some calls are still running after ``timeout`` seconds.
    """
    waited = _collect_calls("as_completed", calls)
    deadline(timeout)
    until_s = None if timeout is None else time.monotonic() + timeout
    ended: queue.SimpleQueue[Call[T]] = queue.SimpleQueue()
    for call in waited:
        call.on_end(ended.put)
    for number in range(len(waited)):
        try:
            yield ended.get(
                timeout=None if until_s is None else max(0.0, until_s - time.monotonic())
            )
        except queue.Empty:
            left = len(waited) - number
            raise NotDone(
                f"{left} of {len(waited)} calls have not ended within {timeout:g} s; "
                "they keep running"
            ) from None


def gather(calls: Any, *, return_exceptions: bool = False) -> Any:
    """Wait for all calls and return their values.

    Args:
        calls: A call, or a list or dictionary of calls, also nested. The result has the same form.
        return_exceptions: Return exceptions as values; otherwise the first one is raised.

    Raises:
        InvalidRequest: An element is not a call.
        Exception: The exception of a call, with the remote traceback as a note.
    """
    calls = calls if isinstance(calls, Call | Mapping) else list(calls)
    waited = _collect_calls("gather", calls)
    if not return_exceptions:
        # In the order of their ends, so that a failure does not wait for slower calls.
        for call in as_completed(waited):
            call.result()
    values = {
        call: call.result() if (error := call.exception()) is None else error for call in waited
    }

    def fill(each: Any) -> Any:
        if isinstance(each, Call):
            return values[each]
        if isinstance(each, Mapping):
            return {name: fill(item) for name, item in each.items()}
        return [fill(item) for item in each]

    return fill(calls)


class MapResults(Iterator[T]):
    """The results of a map, one by one, which ``progress`` can fetch ahead.

    Attributes:
        total: Number of items; None if an iterable of the items does not know its length.
    """

    def __init__(self, results: Generator[T, None, None], total: int | None) -> None:
        self.total = total
        self._results = results
        self._fetched: deque[T] = deque()
        self._error: BaseException | None = None

    def __next__(self) -> T:
        if self._fetched:
            return self._fetched.popleft()
        if self._error is not None:
            error = self._error
            self._error = None
            raise error
        return next(self._results)

    def fetch(self) -> Iterator[bool]:
        """Fetch all results, which stay for ``next``; yield for each whether its item succeeded.

        An exception that ends the map is raised when ``next`` comes to it.
        """
        try:
            for result in self._results:
                self._fetched.append(result)
                yield not isinstance(result, BaseException)
        except Exception as error:
            self._error = error
            yield False

    def close(self) -> None:
        """End the map, and interrupt the items that run."""
        self._fetched.clear()
        self._results.close()


def progress(calls: "Iterable[Call[Any]] | MapResults[Any]", out: TextIO | None = None) -> None:
    """Draw a progress bar until all calls have ended; Ctrl-C stops the bar, not the calls.

    Args:
        calls: Calls of any sessions; or what ``session.map`` returned, which is then fetched to its
            end into memory, and yields its results afterwards.
        out: Where to draw; None is stderr.

    Raises:
        InvalidRequest: An element is not a call.
    """
    bar = _Bar(out or sys.stderr)
    if isinstance(calls, MapResults):
        done = failed = 0
        bar.draw(done, calls.total)
        for has_succeeded in calls.fetch():
            done += 1
            failed += not has_succeeded
            bar.draw_sometimes(done, calls.total, failed)
        bar.draw(done, calls.total, failed)
        bar.end()
        return
    waited = _collect_calls("progress", calls)
    news = threading.Event()
    for call in waited:
        call.on_end(lambda _: news.set())
    while True:
        news.clear()
        over = [call for call in waited if call.is_over()]
        bar.draw(len(over), len(waited), sum(call.exception() is not None for call in over))
        if len(over) == len(waited):
            bar.end()
            return
        news.wait()
        # Limits the redraws if calls take only milliseconds.
        time.sleep(REDRAW_S)


class _Bar:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._started_s = time.monotonic()
        self._drawn_s = self._started_s

    def draw(self, done: int, total: int | None, failed: int = 0) -> None:
        self._drawn_s = time.monotonic()
        bar = count = ""
        if total is not None:
            filled = BAR_CHARACTERS * done // max(1, total)
            bar = "█" * filled + "·" * (BAR_CHARACTERS - filled) + " "
            count = f"/{total}"
        failures = f", {failed} failed" if failed else ""
        self._out.write(f"\r{bar}{done}{count}{failures}, {self._drawn_s - self._started_s:.0f} s")
        self._out.flush()

    def draw_sometimes(self, done: int, total: int | None, failed: int) -> None:
        if time.monotonic() - self._drawn_s >= REDRAW_S:
            self.draw(done, total, failed)

    def end(self) -> None:
        self._out.write("\n")
        self._out.flush()


def _collect_calls(name: str, calls: Any) -> list[Call[Any]]:
    if isinstance(calls, Call):
        return [calls]
    if isinstance(calls, str) or not isinstance(calls, Iterable):
        raise InvalidRequest(
            f"{name}: expected calls, as session.submit(…) returns them, got {calls!r}"
        )
    each_of = calls.values() if isinstance(calls, Mapping) else calls
    return list(dict.fromkeys(call for each in each_of for call in _collect_calls(name, each)))

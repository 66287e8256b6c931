"""Calls of a session as futures, and what their outcomes become here."""

import asyncio
import concurrent.futures
import contextlib
import json
import pickle
import queue
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TextIO, TypeVar

from raysm.client.session.wire import NoSuchCall, Wire
from raysm.client.units import deadline
from raysm.contract.loop_thread import LoopThread
from raysm.contract.parcels import Content, Piece, load
from raysm.contract.session import DISPLAY, DONE, WAITING, CallRequest, CallStatus, Outcome, RemoteError, unframe
from raysm.errors import CallCancelled, CallFailed, NotDone, RaysmError
from raysm.request.codec import from_json

__all__ = ["Call", "CellResult", "Line", "Shown", "cell_result", "error_of", "show_display", "value_of"]


class Shown:
    """What the last line of a cell shows: its text by ``str``, and in a notebook as the value would show itself.

    Attributes:
        data: By MIME type; pictures in base64.
        metadata: IPython's, by MIME type.
    """

    def __init__(self, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
        self.data, self.metadata = dict(data), dict(metadata or {})

    def __repr__(self) -> str:
        return str(self.data.get("text/plain", ""))

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.data, self.metadata


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell printed and showed; as the last line of a notebook's cell it shows ``result``."""

    outputs: list[dict[str, Any]]
    """All of it in order, as nbformat has outputs: ``stream``, ``display_data`` and ``execute_result``."""
    result: Shown | None
    """The value of the last line, as it shows itself; None if it has none."""

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return "".join(
            each["text"] if each["output_type"] == "stream" else f"{each['data'].get('text/plain', '')}\n"
            for each in self.outputs
        )

    def __repr__(self) -> str:
        return "" if self.result is None else repr(self.result)

    def _ipython_display_(self) -> None:
        if self.result is not None:
            show_display({"data": self.result.data, "metadata": self.result.metadata}, sys.stdout)


def cell_result(pieces: Iterable[tuple[str, str]], outcome: Outcome) -> CellResult:
    """Return the result of a cell.

    Args:
        pieces: What it printed and displayed: streams and texts.
        outcome: How it ended.
    """
    outputs: list[dict[str, Any]] = []
    is_to_clear = False
    for stream, text in pieces:
        bundle = json.loads(text) if stream == DISPLAY else {}
        if "clear" in bundle and bundle["clear"]:  # when the next output comes
            is_to_clear = True
            continue
        if is_to_clear or "clear" in bundle:
            outputs, is_to_clear = [], False
        id = bundle.get("transient", {}).get("display_id")
        if "clear" in bundle:
            continue
        if bundle.get("update"):
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
    """Show rich output in the notebook, or its text in ``out`` where there is none."""
    # Not imported: without a notebook, nobody has.
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


def value_of(outcome: Outcome, name: str, loads: Callable[..., Any] = pickle.loads) -> Any:
    """Return the value of a call that did not fail.

    Args:
        outcome: How it ended.
        name: Of the call.
        loads: Reads a pickle of the session's.

    Raises:
        CallFailed: It cannot be read here.
    """
    # None, which most calls return, is sent as nothing.
    if not len(outcome.pickled):
        return None
    try:
        return load(outcome.pickled, loads)
    except Exception as error:  # unpickling runs the value's own code
        raise CallFailed(
            f"the value of {name} cannot be read here: {type(error).__name__}: {error}; return plain data, or install "
            "here what its class needs",
            error_type=type(error).__name__,
        ) from error


def error_of(
    error: RemoteError, pickled: bytes, name: str, session: str, loads: Callable[..., Any] = pickle.loads
) -> BaseException:
    """Return why a call failed: the exception itself where it can be made anew here, with the remote frames as a note.

    Args:
        error: What is known of it.
        pickled: The exception; empty where it did not survive.
        name: Of the call.
        session: Its name.
        loads: Reads a pickle of the session's.
    """
    if error.cancelled:
        return CallCancelled(f"{name} was interrupted")
    where = f"in the session {session}" + (f" on {error.host}" if error.host else "")
    note = f"{where}:\n{error.traceback.rstrip()}" if error.traceback else f"raised {where}"
    # The user's except clauses go by its class: CallFailed only where that cannot be had.
    raised = _made_anew(pickled, loads)
    if raised is None:
        text = f"{error.headline}\n\n{note}" if error.traceback else error.headline
        return CallFailed(text, error_type=error.type, remote_traceback=error.traceback)
    # What raysm itself refused has no frames of anybody's.
    if error.traceback:
        raised.add_note(note)
    return raised


def _made_anew(pickled: Any, loads: Callable[..., Any]) -> Exception | None:
    if not len(pickled):
        return None
    try:
        value = load(pickled, loads)
    except Exception:  # its class may not be here, or want other arguments
        return None
    # SystemExit or KeyboardInterrupt of there would end the program here.
    return value if isinstance(value, Exception) else None


T = TypeVar("T")

# Well below the minute after which proxies cut an answer that does not come, and below the wire's own READ_S.
WAIT_S = 20.0
"""For how long the server is asked to hold an answer back until the call is done."""

LATE_S = 0.5
"""How long output that came before the outcome may be under way by the other connection."""

# Between two looks for a call whose request is under way on the same connection: that takes milliseconds.
ON_ITS_WAY_S = 0.02

KEPT_CHARACTERS = 32 << 20
"""Output of a cell that is kept for its result, the last part."""

INTERRUPTED_S = 10.0
"""How long Ctrl-C waits for the call's end."""


@dataclass(frozen=True, slots=True)
class Line:
    """What calls share: the connection, and the loop in which it lives."""

    loop: LoopThread
    wire: Wire
    session: str
    """The session's name, for people."""
    loads: Callable[..., Any] = pickle.loads
    """Reads a pickle of the session's."""


class Call(Generic[T]):
    """One call.

    Attributes:
        id: By which the session knows it.
        name: For people: the function's.
    """

    def __init__(self, id: str, name: str, line: Line, *, is_cell: bool = False, has_ended: bool = False) -> None:
        """Know of it; ``send`` or ``follow`` begins.

        Args:
            id: By which the session knows it.
            name: For people.
            line: The connection.
            is_cell: Whether its value is a ``CellResult``.
            has_ended: Whether the session said that it has ended; its outcome is still fetched.
        """
        self.id, self.name = id, name
        self._has_ended = has_ended
        self._line = line
        self._ended: concurrent.futures.Future[tuple[CallStatus, Outcome]] = concurrent.futures.Future()
        self._news: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._pieces: deque[tuple[str, str]] | None = deque() if is_cell else None
        self._kept = 0
        # Of the output, in characters since the call began: so a piece is known again, whichever connection brings it.
        self._position = 0
        self._more = asyncio.Event()
        self._is_under_way = False

    # In the loop of the connection

    async def send(self, request: CallRequest, body: Sequence[Piece]) -> None:
        """Have it executed, once, and wait for its outcome."""
        await self._live(request, body)

    async def follow(self) -> None:
        """Wait for the outcome of a call that somebody has sent."""
        await self._live()

    async def _live(self, request: CallRequest | None = None, body: Sequence[Piece] = ()) -> None:
        self._is_under_way = True
        try:
            status, outcome = await self._ask(request, body)
            while status.state != DONE:
                try:
                    # No time limit: a call may run for days, each of these requests is answered within WAIT_S.
                    status, outcome = await self._ask()
                except NoSuchCall:
                    # The server takes a call whose id it knows as the same one: to send it twice executes it once.
                    status, outcome = await self._ask(request, body)
            await self._await_output(status.output_end)
        except asyncio.CancelledError:
            self._fail(CallCancelled(f"{self.name}: the connection was closed; the session may still work on it"))
            raise
        except Exception as error:  # whoever waits has to hear it
            self._fail(error)
        else:
            self._news.put(None)
            self._ended.set_result((status, outcome))
            await self._line.wire.tell({"delivered": self.id})

    def _fail(self, error: BaseException) -> None:
        self._news.put(None)
        self._ended.set_exception(error)

    async def _ask(self, request: CallRequest | None = None, body: Sequence[Piece] = ()) -> tuple[CallStatus, Outcome]:
        head, outcome = await self._line.wire.call(self.id, WAIT_S, request, body)
        return _read(head, outcome)

    @property
    def _path(self) -> str:
        return f"/calls/{self.id}"

    def hear(self, start: int, stream: str, text: str) -> None:
        """Take a piece of what it prints; a piece that came before, by an earlier connection, is passed over."""
        # Behind a connection that broke, the server begins again with what it does not know to have arrived.
        if start + len(text) <= self._position:
            return
        # The first part of a piece may have come by the connection before.
        piece = (stream, text[max(0, self._position - start) :])
        self._news.put(piece)
        if self._pieces is not None:
            self._pieces.append(piece)
            self._kept += len(piece[1])
            while self._kept > KEPT_CHARACTERS and len(self._pieces) > 1:
                self._kept -= len(self._pieces.popleft()[1])
        self._position = start + len(text)
        self._more.set()

    async def _await_output(self, end: int) -> None:
        # The outcome and the output come by different connections, and may overtake each other.
        until_s = time.monotonic() + LATE_S
        while self._position < end and time.monotonic() < until_s:
            self._more.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._more.wait(), until_s - time.monotonic())
        if self._position < end:
            await self._fetch_output()

    async def _fetch_output(self) -> None:
        answer = await self._line.wire.json("GET", f"{self._path}/output", params={"from": self._position})
        for piece in answer["pieces"]:
            self.hear(piece["start"], piece["stream"], piece["text"])

    # For the user

    def result(self, timeout: float | None = None) -> T:
        """Wait for its value; Ctrl-C ends the waiting, not the call.

        Args:
            timeout: Seconds; None is without end.

        Raises:
            InvalidRequest: ``timeout`` is no number of seconds.
            NotDone: A TimeoutError: it has not ended within ``timeout``; it goes on.
            CallCancelled: Somebody interrupted it.
            CallFailed: It failed by what cannot be made anew here.
            Exception: What it raised, with the remote traceback among its notes.
        """
        _, outcome = self._await(timeout)
        if outcome.error is not None:
            raise self._error(outcome.error, outcome.pickled)
        value: Any = (
            value_of(outcome, self.name, self._line.loads)
            if self._pieces is None
            else cell_result(list(self._pieces), outcome)
        )
        result: T = value
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for its end, and return why it failed; None where it did not."""
        _, outcome = self._await(timeout)
        if outcome.error is None:
            return None
        return self._error(outcome.error, outcome.pickled)

    def _error(self, error: RemoteError, pickled: bytes) -> BaseException:
        return error_of(error, pickled, self.name, self._line.session, self._line.loads)

    def _await(self, timeout: float | None) -> tuple[CallStatus, Outcome]:
        # Before it is waited: threading would say that a text cannot be compared.
        deadline(timeout)
        try:
            return self._ended.result(timeout)
        except TimeoutError as error:
            # The call's own TimeoutError, not that of the waiting: both are one class since Python 3.11.
            if self._ended.done():
                raise
            raise NotDone(f"{self.name} has not ended within {timeout:g} s; it goes on") from error

    def wait(self, timeout: float | None) -> bool:
        """Wait for its end, in whatever way; return whether it has ended within so many seconds."""
        deadline(timeout)
        return bool(concurrent.futures.wait([self._ended], timeout).done)

    def outcome(self) -> tuple[CallStatus, Outcome]:
        """Wait for how it ended, as it came."""
        return self._await(None)

    def done(self) -> bool:
        """Whether it has ended, in whatever way, as far as it is known here."""
        return self._has_ended or self._ended.done()

    def is_over(self) -> bool:
        """Whether its outcome is here, so that ``result`` does not wait."""
        return self._ended.done()

    def cancelled(self) -> bool:
        """Whether it has ended because somebody interrupted it."""
        if not self._ended.done() or self._ended.exception() is not None:
            return False
        error = self._ended.result()[1].error
        return error is not None and error.cancelled

    def cancel(self) -> bool:
        """Interrupt it; return whether that was still possible."""
        if self.done():
            return False
        return self._line.loop.run(self._interrupt())

    async def _interrupt(self) -> bool:
        # Asked again while it is on its way, and never where it can no more arrive.
        while not self._ended.done():
            try:
                await self._line.wire.request("POST", f"{self._path}/interrupt")
                return True
            except NoSuchCall:
                if not self._is_under_way:
                    return False
                # What brings it is still on its way: to interrupt it before would be to interrupt nothing.
                await asyncio.sleep(ON_ITS_WAY_S)
        return False

    @property
    def status(self) -> CallStatus:
        """How it is now."""
        if self._ended.done() and self._ended.exception() is None:
            return self._ended.result()[0]
        try:
            answer = self._line.loop.run(self._line.wire.request("GET", self._path))
        except NoSuchCall:  # what brings it is still on its way
            return CallStatus(id=self.id, kind="", name=self.name, state=WAITING)
        status: CallStatus = from_json(CallStatus, unframe(answer)[0]["call"], "call")
        return status

    def logs(self) -> str:
        """Return what it has printed so far; of very much, the end."""
        try:
            answer = self._line.loop.run(self._line.wire.json("GET", f"{self._path}/output"))
        except NoSuchCall:
            return ""
        pieces = [(piece["stream"], piece["text"]) for piece in answer["pieces"]]
        return cell_result(pieces, Outcome()).text

    def add_done_callback(self, fn: "Callable[[Call[T]], object]") -> None:
        """Call ``fn(call)`` once it has ended; at once where it has."""
        self._ended.add_done_callback(lambda _: fn(self))

    def show(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        display: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Print what it prints, and show what it shows, until it has ended; Ctrl-C interrupts it.

        Args:
            out: None is stdout.
            err: None is stderr.
            display: Takes each display; None shows it in the notebook, or prints its text.
        """
        try:
            while (piece := self._news.get()) is not None:
                if piece[0] == DISPLAY:
                    bundle = json.loads(piece[1])
                    show_display(bundle, out or sys.stdout) if display is None else display(bundle)
                    continue
                # Each time: a notebook and a test put others in their place.
                stream = (out or sys.stdout) if piece[0] == "stdout" else (err or sys.stderr)
                stream.write(piece[1])
                stream.flush()
            # For whoever shows it once more: nothing is left to print, and nothing will come.
            self._news.put(None)
        except KeyboardInterrupt:
            with contextlib.suppress(RaysmError):
                self.cancel()
            # So that what it prints as it ends is not shown among what the user does next.
            self.wait(INTERRUPTED_S)
            raise

    def __repr__(self) -> str:
        state = "done" if self.done() else "not done"
        return f"<call {self.name} of the session {self._line.session}: {state}>"


def _read(head: Any, outcome: Content) -> tuple[CallStatus, Outcome]:
    status: CallStatus = from_json(CallStatus, head, "call")
    return status, Outcome.decode(outcome) if len(outcome) else Outcome()

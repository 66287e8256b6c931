"""An open session: the route to its server, the connection, and the running calls.

The client connects directly if the server listens on this machine's loopback, and otherwise through
the job's tunnel. Instances that are processes share this loopback; instances in network namespaces
and containers do not. To find out, the client connects to the port and asks the program there to
prove that it has the job's token.
"""

import asyncio
import atexit
import contextlib
import functools
import logging
import secrets
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raysm.core.client.job.handle import Job, token_of
from raysm.core.client.source.function import pickled_value
from raysm.core.protocol.connections import connect_proved
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.protocol.names import PROJECT_TAG
from raysm.core.protocol.parcels import Piece
from raysm.core.request.codec import from_json
from raysm.errors import InvalidRequest, RaysmError, SessionEnded
from raysm.features.session.client.calls import Call, Line
from raysm.features.session.client.files import Files
from raysm.features.session.client.rays_objects import holds_rays_object, reader
from raysm.features.session.client.starting import why_ended
from raysm.features.session.client.wire import Wire
from raysm.features.session.protocol import (
    CELL,
    DONE,
    JUPYTER,
    WAITING,
    CallRequest,
    CallStatus,
    SessionState,
    Versions,
)

LOOPBACK = "127.0.0.1"
ANSWER_S = 2.0
"""How long to wait for a server on this machine, which usually answers in milliseconds, before
using the tunnel."""

GOODBYE_S = 10.0
"""How long to wait for the head at the end. The wire itself would retry for minutes."""

QUIET_S = 0.5
"""How long the first call on another instance may wait for a process there without a line about
it."""

ARRIVAL_POLL_S = 0.02

_log = logging.getLogger("raysm")


@contextlib.contextmanager
def way_to_server(job: Job, token: str, place: tuple[str, int]) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the current address of the server, ``127.0.0.1:PORT``.

    ``place`` is the name of the head, and the server's port on its loopback.
    """
    host, port = place
    if _is_here(port, token):
        yield lambda: f"{LOOPBACK}:{port}"
        return
    with job.tunnel(port, on=host) as tunnel:
        yield lambda: tunnel.address


def _is_here(port: int, token: str) -> bool:
    async def prove() -> None:
        async with asyncio.timeout(ANSWER_S):
            connection = await connect_proved(LOOPBACK, port, token=token, server_port=port)
        connection.close()

    # In a loop of its own, because the caller may already be in one, as in a notebook.
    loop = LoopThread("session port")
    try:
        loop.run(prove())
    except OSError:  # also TimeoutError
        return False
    finally:
        loop.close()
    return True


_opened: weakref.WeakSet["Opened"] = weakref.WeakSet()


@atexit.register
def _await_arrivals() -> None:
    for opened in list(_opened):
        opened.await_arrival()


class Opened:
    def __init__(self, job: Job, name: str, place: tuple[str, int]) -> None:
        self.job = job
        # To deliver output. Weak, so that calls are freed when their users drop them.
        self._calls: weakref.WeakValueDictionary[str, Call[Any]] = weakref.WeakValueDictionary()
        self._sending: set[Any] = set()
        self._is_ended_here = False
        # Instances whose first call has been sent. The head's process has started already.
        self._entered = {place[0]}
        self._exit = contextlib.ExitStack()
        token = token_of(job).strip()
        self.address = address = self._exit.enter_context(way_to_server(job, token, place))
        self._loop = LoopThread(f"session {name}")
        # After the tunnel on the stack, so that the loop closes first: its connections use the
        # tunnel.
        self._exit.callback(self._loop.close)
        self.open_connection = functools.partial(connect_proved, token=token, server_port=place[1])
        # A new id for each handle, because the session counts clients by id.
        client = secrets.token_hex(8)
        wire = Wire(
            address, token, place[1], client, lambda: why_ended(job, name), self._on_message
        )
        self.line = Line(self._loop, wire, name)
        project = job.tags.get(PROJECT_TAG, "default")
        prefix = f"{job.service.places.root}/sessions/{project}/{job.name}"
        self.files = Files(self.line, job.service, prefix, self.call)
        self.pickles = Versions.here().pickles
        self._there: Versions | None = None
        _opened.add(self)

    def begin(self) -> None:
        self._loop.run(self.line.wire.open())
        state = self.state()
        if state.closing:
            raise SessionEnded(f"the session {self.line.session} is closing: {state.closing}")
        here, self._there = Versions.here(), state.versions
        self.line = replace(self.line, loads=reader(here.ray, self._there.ray))
        # Only a warning: pickles of another cloudpickle usually work.
        of_session, of_caller = self._there.cloudpickle, here.cloudpickle
        if of_caller and of_session != of_caller:
            _log.warning(
                "the session %s has cloudpickle %s, and here is %s",
                self.line.session,
                of_session,
                of_caller,
            )

    def await_calls(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` in total for the running calls of this handle to end."""
        until_s = time.monotonic() + timeout_s
        # A copy, because the connection's thread removes calls from the set when they end.
        for call in list(self._sending):
            call.wait(max(0.0, until_s - time.monotonic()))

    def await_arrival(self) -> None:
        """Return when the session has every call of this handle: those just submitted may not have been sent yet."""
        until_s = time.monotonic() + GOODBYE_S
        with contextlib.suppress(RaysmError, TimeoutError):  # it has ended, or does not answer
            while self._sending and not self._loop.is_closed:
                there = {
                    row["id"]
                    for row in self._loop.run(self.line.wire.json("GET", "/calls"), GOODBYE_S)
                }
                missing = [
                    call.name
                    for call in list(self._sending)
                    if call.id not in there and not call.is_over()
                ]
                if not missing:
                    return
                if time.monotonic() > until_s:
                    _log.warning("%s: not sent: %s", self.line.session, ", ".join(missing))
                    return
                time.sleep(ARRIVAL_POLL_S)

    def end_session(self) -> None:
        # Set first: the session's notice of the end may arrive before the answer, and need not be
        # logged.
        self._is_ended_here = True
        self.ask("POST", "/close", json={"why": "it was closed"})

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._loop.run(self.line.wire.close(), GOODBYE_S)
        self._exit.close()

    def _on_message(self, message: Mapping[str, Any]) -> None:
        # Logged, because printed notices would mix with the output of a cell.
        if "notice" in message:
            if not self._is_ended_here:
                _log.warning("%s: %s", self.line.session, message["notice"])
            return
        call = self._calls.get(message["call"])
        if call is not None:
            call.on_output(message["start"], message["stream"], message["text"])

    def ask(self, method: str, path: str, **how: Any) -> Any:
        """Make a request and return the JSON of its answer; raises like ``Wire.request``."""
        return self._loop.run(self.line.wire.json(method, path, **how))

    def state(self) -> SessionState:
        return as_state(self.ask("GET", "/session"))

    def statuses(self) -> list[CallStatus]:
        return [from_json(CallStatus, row, "call") for row in self.ask("GET", "/calls")]

    def start_jupyter(self, base: str) -> str:
        request = CallRequest(kind=JUPYTER, name="the start of JupyterLab")
        return str(self.call(request, [base.encode()]).result())

    def check_python(self, what: str) -> None:
        assert self._there is not None, "begin() comes first"
        if self._there.pickles != self.pickles:
            raise InvalidRequest(
                f"{what} cannot travel pickled: this is Python {self.pickles}, and the session {self.line.session} "
                f"runs {self._there.python}, which may read it wrongly; use Python {self._there.pickles}, or send "
                "source: exec(…)"
            )

    def check_ray(self, what: str, fn: Callable[..., Any], *values: Any) -> None:
        assert self._there is not None, "begin() comes first"
        of_caller, of_session = Versions.here().ray, self._there.ray
        if of_caller not in ("", of_session) and holds_rays_object(fn, *values):
            raise InvalidRequest(
                f"{what} holds an object of Ray {of_caller}, and the session {self.line.session} runs Ray "
                f"{of_session}, which may read it wrongly; make it inside of the function, or install ray=={of_session}"
            )

    def pickled_item(self, item: Any, what: str) -> bytes:
        self.check_ray(what, list, item)
        return pickled_value(item, what)

    def call(self, request: CallRequest, body: Sequence[Piece]) -> "Call[Any]":
        # The client chooses the id, so that the session recognizes a repeated request.
        call: Call[Any] = Call(
            secrets.token_hex(16), request.name, self.line, is_cell=request.kind == CELL
        )
        self._begin(call, call.send(replace(request, client=self.line.wire.client), body))
        if request.host and request.host not in self._entered:
            self._entered.add(request.host)
            self._loop.start(self._tell_of_wait(call, request.host))
        return call

    async def _tell_of_wait(self, call: "Call[Any]", host: str) -> None:
        await asyncio.sleep(QUIET_S)
        if call.is_over():
            return
        with contextlib.suppress(RaysmError):  # raised by the call itself
            if (await self.line.wire.json("GET", f"/calls/{call.id}"))["state"] == WAITING:
                _log.warning(
                    "waiting for a Python process on %s, which its first cell starts", host
                )

    def follow(self, status: CallStatus) -> "Call[Any]":
        # One future for each call, so that its output arrives once.
        followed = self._calls.get(status.id)
        if followed is not None:
            return followed
        how = {"is_cell": status.kind == CELL, "has_ended": status.state == DONE}
        call: Call[Any] = Call(status.id, status.name, self.line, **how)
        self._begin(call, call.send(None))
        return call

    def _begin(self, call: "Call[Any]", work: Any) -> None:
        self._calls[call.id] = call
        future = self._loop.start(work)
        # Keeps the call alive while it runs, because its user may only wait for a callback.
        self._sending.add(call)
        future.add_done_callback(lambda _: self._sending.discard(call))


def as_state(row: Any) -> SessionState:
    state: SessionState = from_json(SessionState, row, "session")
    return state

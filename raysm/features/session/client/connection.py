"""The connection with an open session: the route to its server, and the running calls.

The client connects directly if the server listens on this machine's loopback, and otherwise through
the job's tunnel. Instances that are processes share this loopback; instances in network namespaces
and containers do not. To find out, the client connects to the port and asks the program there to
prove that it has the job's token.
"""

import asyncio
import atexit
import contextlib
import functools
import io
import logging
import pickle
import secrets
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raysm.core.client.job.handle import Job, token_of
from raysm.core.client.source.function import pickled_value, pickling
from raysm.core.protocol.connections import connect_proved
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.protocol.names import PROJECT_TAG
from raysm.core.protocol.parcels import Piece
from raysm.core.request.codec import from_json
from raysm.errors import CallFailed, InvalidRequest, RaysmError, SessionEnded
from raysm.features.session.client.calls import Call, CallContext
from raysm.features.session.client.files import Files
from raysm.features.session.client.start import ServerAddress, describe_end
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
def open_route(job: Job, token: str, server: ServerAddress) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the server's address on this machine, ``127.0.0.1:PORT``."""
    if _listens_here(server.port, token):
        yield lambda: f"{LOOPBACK}:{server.port}"
        return
    with job.tunnel(server.port, on=server.host) as tunnel:
        yield lambda: tunnel.address


def _listens_here(port: int, token: str) -> bool:
    async def prove() -> None:
        async with asyncio.timeout(ANSWER_S):
            connection = await connect_proved(LOOPBACK, port, token=token, server_port=port)
        connection.close()

    # In a separate loop, because the caller may already be in one, as in a notebook.
    loop = LoopThread("session port")
    try:
        loop.run(prove())
    except OSError:  # also TimeoutError
        return False
    finally:
        loop.close()
    return True


_connections: weakref.WeakSet["SessionConnection"] = weakref.WeakSet()


@atexit.register
def _wait_until_all_are_sent() -> None:
    for connection in list(_connections):
        connection.wait_until_sent()


class SessionConnection:
    """The connection with the server of one session, and the calls that were sent over it."""

    def __init__(self, job: Job, name: str, server: ServerAddress) -> None:
        self.job = job
        # To deliver output. Weak, so that calls are freed when their users drop them.
        self._calls: weakref.WeakValueDictionary[str, Call[Any]] = weakref.WeakValueDictionary()
        self._sending: set[Any] = set()
        self._is_ended_here = False
        # Instances whose first call has been sent. The head's process has started already.
        self._entered = {server.host}
        self._exit = contextlib.ExitStack()
        token = token_of(job).strip()
        self.address = self._exit.enter_context(open_route(job, token, server))
        self._loop = LoopThread(f"session {name}")
        # After the tunnel on the stack, so that the loop closes first: its connections use the
        # tunnel.
        self._exit.callback(self._loop.close)
        self.open_connection = functools.partial(
            connect_proved, token=token, server_port=server.port
        )
        # A new id for each handle, because the session counts clients by id.
        client = secrets.token_hex(8)
        wire = Wire(
            self.address,
            self.open_connection,
            client,
            describe_end=lambda: describe_end(job, name),
            on_message=self._on_message,
        )
        self.context = CallContext(self._loop, wire, name)
        project = job.tags.get(PROJECT_TAG, "default")
        prefix = f"{job.service.places.root}/sessions/{project}/{job.name}"
        self.files = Files(self.context, job.service, prefix, self.send_call)
        self.pickle_version = Versions.here().pickle_version
        self._there: Versions | None = None
        _connections.add(self)

    def open(self) -> None:
        self._loop.run(self.context.wire.open())
        state = self.fetch_state()
        if state.closing:
            raise SessionEnded(f"the session {self.context.session} is closing: {state.closing}")
        here = Versions.here()
        self._there = state.versions
        self.context = replace(self.context, loads=choose_loads(here.ray, self._there.ray))
        # Only a warning: pickles of another cloudpickle usually work.
        theirs = self._there.cloudpickle
        if here.cloudpickle and theirs != here.cloudpickle:
            _log.warning(
                "the session %s has cloudpickle %s, and here is %s",
                self.context.session,
                theirs,
                here.cloudpickle,
            )

    def wait_for_calls(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` in total for the running calls of this handle to end."""
        until_s = time.monotonic() + timeout_s
        # A copy, because the connection's thread removes calls from the set when they end.
        for call in list(self._sending):
            call.wait(max(0.0, until_s - time.monotonic()))

    def wait_until_sent(self) -> None:
        """Wait until the session has received every call of this handle."""
        until_s = time.monotonic() + GOODBYE_S
        with contextlib.suppress(RaysmError, TimeoutError):  # it has ended, or does not answer
            while self._sending and not self._loop.is_closed:
                there = {
                    row["id"]
                    for row in self._loop.run(self.context.wire.json("GET", "/calls"), GOODBYE_S)
                }
                missing = [
                    call.name
                    for call in list(self._sending)
                    if call.id not in there and not call.is_over()
                ]
                if not missing:
                    return
                if time.monotonic() > until_s:
                    _log.warning("%s: not sent: %s", self.context.session, ", ".join(missing))
                    return
                time.sleep(ARRIVAL_POLL_S)

    def end_session(self) -> None:
        # Set first: the session's notice of the end may arrive before the answer, and need not be
        # logged.
        self._is_ended_here = True
        self.ask("POST", "/close", json={"why": "it was closed"})

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._loop.run(self.context.wire.close(), GOODBYE_S)
        self._exit.close()

    def _on_message(self, message: Mapping[str, Any]) -> None:
        # Logged, because printed notices would mix with the output of a cell.
        if "notice" in message:
            if not self._is_ended_here:
                _log.warning("%s: %s", self.context.session, message["notice"])
            return
        call = self._calls.get(message["call"])
        if call is not None:
            call.on_output(message["start"], message["stream"], message["text"])

    def ask(self, method: str, path: str, **how: Any) -> Any:
        """Make a request and return the JSON of its answer; it raises like ``Wire.request``."""
        return self._loop.run(self.context.wire.json(method, path, **how))

    def fetch_state(self) -> SessionState:
        return parse_state(self.ask("GET", "/session"))

    def fetch_statuses(self) -> list[CallStatus]:
        return [from_json(CallStatus, row, "call") for row in self.ask("GET", "/calls")]

    def start_jupyter(self, base: str) -> str:
        request = CallRequest(kind=JUPYTER, name="the start of JupyterLab")
        return str(self.send_call(request, [base.encode()]).result())

    def check_python(self, what: str) -> None:
        assert self._there is not None, "open() comes first"
        if self._there.pickle_version != self.pickle_version:
            raise InvalidRequest(
                f"{what} cannot be sent pickled: this is Python {self.pickle_version}, and the "
                f"session {self.context.session} runs {self._there.python}, which may read it "
                f"wrongly; use Python {self._there.pickle_version}, or send source: exec(…)"
            )

    def check_ray(self, what: str, fn: Callable[..., Any], *values: Any) -> None:
        assert self._there is not None, "open() comes first"
        ours = Versions.here().ray
        theirs = self._there.ray
        if ours not in ("", theirs) and holds_ray_object(fn, *values):
            raise InvalidRequest(
                f"{what} holds an object of Ray {ours}, and the session {self.context.session} "
                f"runs Ray {theirs}, which may read it wrongly; make it inside of the function, "
                f"or install ray=={theirs}"
            )

    def pickle_item(self, item: Any, what: str) -> bytes:
        self.check_ray(what, list, item)
        return pickled_value(item, what)

    def send_call(self, request: CallRequest, body: Sequence[Piece]) -> "Call[Any]":
        """Send a call in the background; return its future."""
        # The client chooses the id, so that the session recognizes a repeated request.
        call: Call[Any] = Call(
            secrets.token_hex(16), request.name, self.context, is_cell=request.kind == CELL
        )
        self._start(call, call.send(replace(request, client=self.context.wire.client), body))
        if request.host and request.host not in self._entered:
            self._entered.add(request.host)
            self._loop.start(self._warn_if_waiting(call, request.host))
        return call

    async def _warn_if_waiting(self, call: "Call[Any]", host: str) -> None:
        await asyncio.sleep(QUIET_S)
        if call.is_over():
            return
        with contextlib.suppress(RaysmError):  # raised by the call itself
            if (await self.context.wire.json("GET", f"/calls/{call.id}"))["state"] == WAITING:
                _log.warning(
                    "waiting for a Python process on %s, which its first cell starts", host
                )

    def follow(self, status: CallStatus) -> "Call[Any]":
        """Return the future of a call of any client."""
        # One future for each call, so that its output arrives once.
        followed = self._calls.get(status.id)
        if followed is not None:
            return followed
        call: Call[Any] = Call(
            status.id,
            status.name,
            self.context,
            is_cell=status.kind == CELL,
            has_ended=status.state == DONE,
        )
        self._start(call, call.send(None))
        return call

    def _start(self, call: "Call[Any]", work: Any) -> None:
        self._calls[call.id] = call
        future = self._loop.start(work)
        # Keeps the call alive while it runs, because its user may only wait for a callback.
        self._sending.add(call)
        future.add_done_callback(lambda _: self._sending.discard(call))


def parse_state(row: Any) -> SessionState:
    state: SessionState = from_json(SessionState, row, "session")
    return state


class _RayObjectFound(Exception):
    pass


def holds_ray_object(fn: Callable[..., Any], *values: Any) -> bool:
    """Return whether the pickle of a call would contain an object of Ray.

    A function that merely uses Ray contains none, since its calls are looked up where it runs. An
    object of Ray is pickled with the fields of its version, and another version may misread them:
    of eight kinds that Ray 2.55.1 pickled, 2.60.0 read seven, and an actor class failed at its
    first call by an AttributeError deep within Ray (no ``num_objects_per_yield``). No version
    promises which ones work.
    """

    def refuse(item: Any) -> None:
        # Only instances: Ray's classes are pickled by name, and looked up in the session's Ray. A
        # function of Ray's API that was imported by name is pickled by value, and is recognized by
        # the objects that Ray has attached to it.
        if _is_of_ray(type(item).__module__):
            raise _RayObjectFound

    with pickling(fn, refuse) as pickled:
        try:
            pickled((fn, values))
        except _RayObjectFound:
            return True
        # A value that cannot be pickled is reported later, when the call is pickled.
        except Exception:
            return False
    return False


def choose_loads(ours: str, theirs: str) -> Callable[..., Any]:
    """Return the function that loads values of a session.

    Between two versions of Ray it raises CallFailed for an object of Ray; otherwise it is
    ``pickle.loads``.
    """
    if ours in ("", theirs):
        # Without Ray, Python's own ImportError says what is missing.
        return pickle.loads

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if _is_of_ray(module):
                raise CallFailed(
                    f"it holds {module}.{name} of Ray {theirs}, and here is Ray {ours}, which may "
                    f"read it wrongly; return plain data, or install ray=={theirs}"
                )
            return super().find_class(module, name)

    return lambda pickled, buffers=None: Unpickler(io.BytesIO(pickled), buffers=buffers).load()


def _is_of_ray(module: str) -> bool:
    return module.partition(".")[0] == "ray"

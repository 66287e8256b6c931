"""The HTTP server of a session on the head's loopback, for clients that have proved that they know the job's token.

It answers with frames and JSON as defined in contract.session, and unpickles nothing.
"""

import asyncio
import contextlib
import functools
import json
import rlcompleter
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from aiohttp import web

from raysm.contract.connections import HANDSHAKE_S, prove_server
from raysm.contract.parcels import BULK
from raysm.contract.session import MAX_BODY_BYTES, CallRequest, frame, unframe
from raysm.errors import InvalidRequest, RaysmError
from raysm.request.codec import from_json, to_json
from raysm.workloads.session.blobs import Blob
from raysm.workloads.session.calls import Call, answer, seconds_of, status_of
from raysm.workloads.session.clients import Clients
from raysm.workloads.session.files import Transfers, receive, send, size_of
from raysm.workloads.session.host import SessionHost
from raysm.workloads.session.jupyters import Jupyters

__all__ = ["Door", "SessionServer"]

LOOPBACK = "127.0.0.1"
QUEUE = 1024
MAX_HANDSHAKES = 256
"""Maximum number of connections in their handshake. One more ends the oldest, so that nothing locks clients out."""
COMPLETION_S = 1.0
"""Completions that take longer are dropped."""
PAUSE_S = 0.1
"""Pause after a failure to accept a connection, for example because descriptors ran out."""


class Door:
    """Listens on the loopback and admits clients; belongs to the running event loop."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        token: bytes,
        large: Callable[[socket.socket], Coroutine[Any, Any, None]],
    ) -> None:
        """Begin to listen at a port that the system chooses.

        Args:
            protocol: Creates the protocol that serves an admitted connection.
            token: The job's token.
            large: Serves and closes an admitted connection that carries one large value.
        """
        self._protocol, self._token, self._large = protocol, token, large
        self._listener = socket.create_server((LOOPBACK, 0), backlog=QUEUE)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        # An ordered set, the oldest first.
        self._handshakes: dict[asyncio.Task[bool], None] = {}
        # asyncio holds tasks weakly.
        self._exchanges: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Stop listening, and end the connections that are not admitted yet."""
        tasks = [self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._handshakes) >= MAX_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                oldest.cancel()
                del self._handshakes[oldest]
            task = asyncio.create_task(self._admit(connection))
            self._handshakes[task] = None
            task.add_done_callback(functools.partial(self._settle, connection=connection))

    async def _admit(self, connection: socket.socket) -> bool:
        """Check a connection's token and start to serve it; return False if it failed."""
        connection.setblocking(False)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await prove_server(connection, self._token, self.port)
                is_large = await _first_byte(connection) == BULK
            if is_large:
                task = asyncio.create_task(self._large(connection))
                self._exchanges.add(task)
                task.add_done_callback(self._exchanges.discard)
            else:
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        except OSError:  # also NotProved and TimeoutError
            return False
        return True

    def _settle(self, task: "asyncio.Task[bool]", connection: socket.socket) -> None:
        self._handshakes.pop(task, None)
        # Closed here, because a task that is cancelled before its first step does not run at all.
        if task.cancelled() or not task.result():
            connection.close()


async def _first_byte(connection: socket.socket) -> bytes:
    """Wait for the first byte and return it without consuming it."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BlockingIOError):
        return connection.recv(1, socket.MSG_PEEK)
    is_there = asyncio.Event()
    loop.add_reader(connection, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


T = TypeVar("T")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SessionServer:
    """Serves one session."""

    def __init__(self, host: SessionHost, token: bytes, jupyters: Jupyters) -> None:
        """Create the server; ``start`` listens.

        Args:
            host: The session.
            token: The job's token.
            jupyters: The session's Jupyter servers.
        """
        self._host, self._token, self._jupyters = host, token.strip(), jupyters
        self._clients = Clients(host)
        self._transfers = Transfers()
        self._runner: web.AppRunner | None = None
        self._door: Door | None = None

    async def start(self) -> int:
        """Listen on the loopback; return the port."""
        # No access log, because it would contain the names of the user's files.
        self._runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        assert self._runner.server is not None, "it is set up"
        self._door = Door(self._runner.server, self._token, self._serve_large)
        return self._door.port

    async def close(self) -> None:
        """Send the last notices, and stop serving."""
        self._clients.wake_all()
        await self._jupyters.close()
        await self._transfers.close()
        if self._door is not None:
            await self._door.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._host.blobs.close()

    async def _serve_large(self, connection: socket.socket) -> None:
        def outcome(id: str) -> Blob:
            call = self._host.calls.get(id)
            if call is None or not isinstance(call.outcome, Blob):
                raise InvalidRequest(f"the call {id} has no large outcome")
            return call.outcome

        await self._host.blobs.serve(connection, outcome)

    def application(self) -> web.Application:
        """Return the routes."""
        app = web.Application(middlewares=[self._refuse], client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.get("/session", self._state),
                web.post("/calls/{id}", self._ask),
                # A POST starts the call; a GET only asks for it.
                web.get("/calls/{id}", self._call),
                web.get("/calls", self._calls),
                web.get("/calls/{id}/output", self._output),
                web.post("/calls/{id}/interrupt", self._interrupt),
                web.put("/functions/{digest}", self._function),
                web.get("/slots", self._slots),
                web.post("/complete", self._complete),
                web.post("/keep", self._keep),
                web.post("/close", self._close),
                web.get("/events", self._clients.serve),
                web.put("/files", self._receive),
                web.get("/files", self._send),
                web.get("/files/size", self._size),
                web.post("/jupyter", self._start_jupyter),
                web.route("*", "/jupyter/{name}/{path:.*}", self._pass_on),
            ]
        )
        return app

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (RaysmError, OSError) as error:
            return web.json_response({"error": str(error), "type": type(error).__name__}, status=status_of(error))

    # The session

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(to_json(self._host.state()))

    async def _keep(self, request: web.Request) -> web.Response:
        seconds = float((await request.json())["seconds"])
        # This refuses NaN, too.
        if not 0 < seconds < float("inf"):
            raise InvalidRequest(f"keep takes a time above 0, got {seconds:g} s")
        self._host.keep(seconds)
        return await self._state(request)

    async def _close(self, request: web.Request) -> web.Response:
        self._host.close(str((await request.json()).get("why") or "it was closed"))
        return web.json_response({})

    async def _slots(self, request: web.Request) -> web.Response:
        num_cpus, num_gpus = (float(request.query.get(name, 0)) for name in ("num_cpus", "num_gpus"))
        return web.json_response({"slots": self._host.remote.slots(num_cpus, num_gpus)})

    async def _complete(self, request: web.Request) -> web.Response:
        text = str((await request.json())["text"])
        try:
            matches = await _beside_the_loop(lambda: completions(text, self._host.cells.namespace), COMPLETION_S)
        except TimeoutError:  # a property of the user's object is slow
            matches = []
        return web.json_response({"matches": matches})

    # Calls

    async def _ask(self, request: web.Request) -> web.Response:
        # Parsed first, so that a refused request starts nothing.
        wait_s = seconds_of(request.query.get("wait", 0))
        head, body = unframe(await request.read())
        call_request = from_json(CallRequest, head, "call")
        is_large = request.query.get("large") == "1"
        call = self._host.calls.ask(
            request.match_info["id"], call_request, None if is_large else body, self._clients.wake
        )
        return await self._answer(call, request, wait_s)

    async def _call(self, request: web.Request) -> web.Response:
        return await self._answer(self._known(request), request, seconds_of(request.query.get("wait", 0)))

    async def _answer(self, call: Call, request: web.Request, wait_s: float) -> web.Response:
        status, outcome = await answer(call, wait_s)
        head = {"call": to_json(status), "elsewhere": outcome is None}
        return web.Response(body=frame(head, outcome or b""), content_type="application/octet-stream")

    async def _calls(self, request: web.Request) -> web.Response:
        return web.json_response([to_json(call.status) for call in self._host.calls.every()])

    async def _output(self, request: web.Request) -> web.Response:
        call = self._known(request)
        pieces = call.output.since(int(request.query.get("from", 0)))
        rows = [{"start": piece.start, "stream": piece.stream, "text": piece.text} for piece in pieces]
        return web.json_response({"pieces": rows, "end": call.output.end})

    async def _interrupt(self, request: web.Request) -> web.Response:
        call = self._known(request)
        self._host.calls.interrupt(call)
        return web.json_response(to_json(call.status))

    async def _function(self, request: web.Request) -> web.Response:
        self._host.remote.keep_function(request.match_info["digest"], await request.read())
        return web.json_response({})

    def _known(self, request: web.Request) -> Call:
        call = self._host.calls.get(request.match_info["id"])
        if call is None:
            raise web.HTTPNotFound(text=json.dumps({"error": "there is no such call"}))
        return call

    # Jupyter

    async def _start_jupyter(self, request: web.Request) -> web.Response:
        self._host.active()
        return web.json_response({"name": await self._jupyters.start(str((await request.json())["base"]))})

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        # The raw path, because quoting a decoded path again may change the name of a notebook.
        key = request.rel_url.raw_path_qs.removeprefix(f"/jupyter/{name}/")
        return await self._jupyters.pass_on(name, request, key)

    def wake_all(self) -> None:
        """Send new notices to all clients."""
        self._clients.wake_all()

    # Files

    async def _receive(self, request: web.Request) -> web.Response:
        path, address = self._host.path(request.query.get("path", "")), request.query.get("from")
        if address is None:
            size: int | None = await receive(path, request.content, None)
        else:
            size = await self._transfer(request, address, lambda: receive(path, request.content, address))
        self._host.active()
        return web.json_response({"path": str(path), "bytes": size})

    async def _send(self, request: web.Request) -> web.StreamResponse:
        path, address = self._host.path(request.query.get("path", "")), request.query.get("to")
        self._host.active()
        if address is None:
            size_of(path)
            # aiohttp uses sendfile, so no byte passes through Python.
            return web.FileResponse(path)
        return web.json_response({"bytes": await self._transfer(request, address, lambda: send(path, address))})

    async def _transfer(
        self, request: web.Request, address: str, begin: Callable[[], Coroutine[Any, Any, int]]
    ) -> int | None:
        return await self._transfers.wait(address, begin, seconds_of(request.query.get("wait", 0)))

    async def _size(self, request: web.Request) -> web.Response:
        return web.json_response({"bytes": size_of(self._host.path(request.query.get("path", "")))})


async def _beside_the_loop(work: Callable[[], T], timeout_s: float) -> T:
    """Run user code in a daemon thread, so that it blocks neither the event loop nor the end of the session.

    Raises:
        TimeoutError: The code takes longer than ``timeout_s``.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # user code
            outcome = functools.partial(done.set_exception, RaysmError(f"{type(error).__name__}: {error}"))
        else:
            outcome = functools.partial(done.set_result, value)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if done.done() else outcome())

    threading.Thread(target=run, daemon=True, name="raysm-completion").start()
    return await asyncio.wait_for(done, timeout_s)


def completions(text: str, namespace: dict[str, Any]) -> list[str]:
    """Return completions of ``text``, a name or ``name.attribute`` of the namespace."""
    # rlcompleter instead of jedi, which would read the source of imported modules in the server's process.
    completer = rlcompleter.Completer(namespace)
    matches: list[str] = []
    # rlcompleter evaluates properties of the user's objects, which may be slow.
    deadline_s = time.monotonic() + COMPLETION_S
    while time.monotonic() < deadline_s and len(matches) < 200:
        match = completer.complete(text, len(matches))
        if match is None:
            break
        matches.append(match)
    return matches

"""The HTTP server of a session on the head's loopback.

Its clients have proved that they know the job's token.

Calls and output go over the WebSocket of ``clients``, everything else by HTTP. Nothing is unpickled
here.
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

from raysm.core.protocol.connections import HANDSHAKE_S, prove_server
from raysm.core.protocol.parcels import BULK
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.session.cluster.blobs import Blob
from raysm.features.session.cluster.calls import Call, choose_http_status
from raysm.features.session.cluster.clients import Clients
from raysm.features.session.cluster.files import measure_file, receive
from raysm.features.session.cluster.host import SessionHost
from raysm.features.session.cluster.jupyter import Jupyters

COMPLETION_S = 1.0

T = TypeVar("T")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SessionServer:
    def __init__(self, host: SessionHost, token: bytes, jupyters: Jupyters) -> None:
        self._host = host
        self._token = token.strip()
        self._jupyters = jupyters
        self._clients = Clients(host)
        self._runner: web.AppRunner | None = None
        self._listener: Listener | None = None
        self.wake_all = self._clients.wake_all

    async def start(self) -> int:
        # No access log, because it would contain the names of the user's files.
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        assert self._runner.server is not None, "it is set up"
        self._listener = Listener(self._runner.server, self._token, self._serve_large)
        return self._listener.port

    async def close(self) -> None:
        self._clients.wake_all()
        await self._jupyters.close()
        if self._listener is not None:
            await self._listener.close()
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

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[self._refuse])
        app.add_routes(
            [
                web.get("/session", self._state),
                web.get("/events", self._clients.serve),
                web.get("/calls", self._calls),
                web.get("/calls/{id}", self._status),
                web.get("/calls/{id}/output", self._output),
                web.post("/calls/{id}/interrupt", self._interrupt),
                web.get("/slots", self._slots),
                web.post("/complete", self._complete),
                web.post("/keep", self._keep),
                web.post("/close", self._close),
                web.put("/files", self._receive),
                web.get("/files", self._send),
                web.get("/files/size", self._size),
                web.route("*", "/jupyter/{name}/{path:.*}", self._forward),
            ]
        )
        return app

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (RaysmError, OSError) as error:
            return web.json_response(
                {"error": str(error), "type": type(error).__name__},
                status=choose_http_status(error),
            )

    # The session

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(to_json(self._host.state()))

    async def _keep(self, request: web.Request) -> web.Response:
        seconds = float((await request.json())["seconds"])
        # This refuses NaN, too.
        if not 0 < seconds < float("inf"):
            raise InvalidRequest(f"keep takes a time above 0, got {seconds:g} s")
        self._host.lifetime.keep(time.monotonic() + seconds)
        return await self._state(request)

    async def _close(self, request: web.Request) -> web.Response:
        self._host.close(str((await request.json()).get("why") or "it was closed"))
        return web.json_response({})

    async def _slots(self, request: web.Request) -> web.Response:
        num_cpus, num_gpus = (
            float(request.query.get(name, 0)) for name in ("num_cpus", "num_gpus")
        )
        return web.json_response({"slots": self._host.remote.count_slots(num_cpus, num_gpus)})

    async def _complete(self, request: web.Request) -> web.Response:
        text = str((await request.json())["text"])
        try:
            matches = await _run_in_thread(
                lambda: find_completions(text, self._host.cells.namespace), COMPLETION_S
            )
        except TimeoutError:  # a property of the user's object is slow
            matches = []
        return web.json_response({"matches": matches})

    # Calls

    async def _calls(self, request: web.Request) -> web.Response:
        return web.json_response([to_json(call.status) for call in self._host.calls.list_all()])

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(to_json(self._known(request).status))

    async def _output(self, request: web.Request) -> web.Response:
        call = self._known(request)
        pieces = call.output.read_from(int(request.query.get("from", 0)))
        rows = [
            {"start": piece.start, "stream": piece.stream, "text": piece.text} for piece in pieces
        ]
        return web.json_response({"pieces": rows, "end": call.output.end})

    async def _interrupt(self, request: web.Request) -> web.Response:
        self._host.calls.interrupt(self._known(request))
        return await self._status(request)

    def _known(self, request: web.Request) -> Call:
        call = self._host.calls.get(request.match_info["id"])
        if call is None:
            raise web.HTTPNotFound(text=json.dumps({"error": "there is no such call"}))
        return call

    # Jupyter

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        # The raw path, because quoting a decoded path again may change the name of a notebook.
        key = request.rel_url.raw_path_qs.removeprefix(f"/jupyter/{name}/")
        return await self._jupyters.forward(name, request, key)

    # Files

    async def _receive(self, request: web.Request) -> web.Response:
        path = self._host.path(request.query.get("path", ""))
        size = await receive(path, request.content, None)
        self._host.lifetime.note_activity(time.monotonic())
        return web.json_response({"path": str(path), "bytes": size})

    async def _send(self, request: web.Request) -> web.StreamResponse:
        path = self._host.path(request.query.get("path", ""))
        self._host.lifetime.note_activity(time.monotonic())
        measure_file(path)
        # aiohttp uses sendfile, so no byte passes through Python.
        return web.FileResponse(path)

    async def _size(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"bytes": measure_file(self._host.path(request.query.get("path", "")))}
        )


async def _run_in_thread(work: Callable[[], T], timeout_s: float) -> T:
    """Run user code in a daemon thread, so that it blocks neither event loop nor session end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # user code
            outcome = functools.partial(
                done.set_exception, RaysmError(f"{type(error).__name__}: {error}")
            )
        else:
            outcome = functools.partial(done.set_result, value)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if done.done() else outcome())

    threading.Thread(target=run, daemon=True, name="raysm-completion").start()
    return await asyncio.wait_for(done, timeout_s)


def find_completions(text: str, namespace: dict[str, Any]) -> list[str]:
    # rlcompleter instead of jedi, which would read the source of imported modules in the server's
    # process.
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


LOOPBACK = "127.0.0.1"
QUEUE = 1024
MAX_HANDSHAKES = 256
"""Maximum number of connections in their handshake. One more ends the oldest, so that nothing locks
clients out."""
PAUSE_S = 0.1
"""Pause after a failure to accept a connection, for example because descriptors ran out."""


class Listener:
    """Admits only connections that prove that they know the token.

    It listens at a port of the loopback that the system chooses, and belongs to the running event
    loop.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        token: bytes,
        large: Callable[[socket.socket], Coroutine[Any, Any, None]],
    ) -> None:
        self._protocol = protocol
        self._token = token
        self._large = large
        self._listener = socket.create_server((LOOPBACK, 0), backlog=QUEUE)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        # An ordered set, the oldest first.
        self._handshakes: dict[asyncio.Task[bool], None] = {}
        # asyncio holds tasks weakly.
        self._exchanges: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
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

"""The clients of a session, each with one WebSocket: what they ask goes in, outcomes and what calls print go out.

A client that is there says so by a heartbeat. Whatever it asks here it may ask again, over another connection or by
HTTP: a call is known by its id. Nothing that a client sent is unpickled here.
"""

import asyncio
import contextlib
import json
from typing import Any

from aiohttp import WSMsgType, web

from raysm.contract.session import CallRequest, frame, unframe
from raysm.request.codec import from_json, to_json
from raysm.workloads.session.calls import NO_SUCH_CALL, Call, answer, seconds_of, status_of
from raysm.workloads.session.host import SessionHost

__all__ = ["Clients"]

MOST_BYTES = 1 << 20
"""Of one message of a client's: what is larger comes by HTTP, so that no heartbeat has to wait behind it."""


class Clients:
    """Those that are connected."""

    def __init__(self, host: SessionHost) -> None:
        """Begin with none.

        Args:
            host: Whose they are.
        """
        self._host = host
        self._connections: set[_Connection] = set()

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Be connected with one, until it goes."""
        socket = web.WebSocketResponse(max_msg_size=MOST_BYTES)
        await socket.prepare(request)
        connection = _Connection(self._host, request.query.get("client", ""), socket, self.wake)
        self._connections.add(connection)
        try:
            await connection.live()
        finally:
            self._connections.discard(connection)
        return socket

    def wake(self, call: Call) -> None:
        """Have the client of a call told what it printed; in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._host.loop.call_soon_threadsafe(self._mark, call)

    def _mark(self, call: Call) -> None:
        for connection in self._connections:
            connection.mark(call)

    def wake_all(self) -> None:
        """Have every client told what there is to know."""
        for connection in self._connections:
            connection.news.set()


class _Connection:
    """One WebSocket."""

    def __init__(self, host: SessionHost, client: str, socket: web.WebSocketResponse, wake: Any) -> None:
        self._host, self._client, self._socket, self._wake = host, client, socket, wake
        # Those of an earlier connection, too: what they print meanwhile it asks for by itself.
        self._printing = {call for call in host.calls.running() if call.request.client == client}
        self.news = asyncio.Event()
        self.news.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def mark(self, call: Call) -> None:
        # Others see it by asking for its output: what one prints is not everybody's.
        if self._client == call.request.client:
            self._printing.add(call)
            self.news.set()

    async def live(self) -> None:
        self._host.heard(self._client)
        self._begin(self._tell())
        try:
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    self._hear(json.loads(message.data))
                elif message.type is WSMsgType.BINARY:
                    self._begin(self._answer(message.data))
        finally:
            # No goodbye: the client may come back by another connection, and is detached when it is silent for a while.
            for task in self._tasks:
                task.cancel()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hear(self, message: dict[str, Any]) -> None:
        if "delivered" in message:
            self._host.calls.deliver(str(message["delivered"]))
        if message.get("leaves"):
            self._host.left(self._client)
        else:
            self._host.heard(self._client)

    async def _answer(self, content: bytes) -> None:
        """Answer one question: a call that is to be executed, or one that was sent before."""
        head, body = unframe(content)
        number = {"ask": head.get("ask")}
        try:
            reply, outcome = await self._outcome(head, body)
        except Exception as error:  # whoever asked waits, and would wait for ever
            reply, outcome = {"status": status_of(error), "error": str(error)}, b""
        # One that left has its answer by its next connection.
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(frame(number | reply, outcome))

    async def _outcome(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        # Both before anything is executed: what is refused must not run.
        id, wait_s = str(head["call"]), seconds_of(head.get("wait", 0))
        if head.get("request") is None:
            call = self._host.calls.get(id)
            if call is None:
                return {"status": NO_SUCH_CALL}, b""
        else:
            request = from_json(CallRequest, head["request"], "call")
            call = self._host.calls.ask(id, request, None if head.get("large") else body, self._wake)
        # What is large has a connection of its own: this one has heartbeats and what others print, too.
        status, outcome = await answer(call, wait_s)
        return {"status": 200, "call": to_json(status), "elsewhere": outcome is None}, outcome or b""

    async def _tell(self) -> None:
        """Send what the client's calls print, and what there is to know."""
        # From the beginning: what the client has heard by an earlier connection it passes over itself.
        positions: dict[str, int] = {}
        # What was said before it came is not said again: a new client is not warned of an end that was put off.
        notices = len(self._host.notices)
        while not self._socket.closed:
            await self.news.wait()
            self.news.clear()
            while self._printing:
                call = self._printing.pop()
                for piece in call.output.since(positions.get(call.id, 0)):
                    positions[call.id] = piece.end
                    row = {"start": piece.start, "stream": piece.stream, "text": piece.text}
                    # A client that reads slowly waits here alone: the call's own output is bounded.
                    await self._socket.send_json({"call": call.id, **row})
            for notice in self._host.notices[notices:]:
                notices += 1
                await self._socket.send_json({"notice": notice})

"""The clients of a session, each with one WebSocket for calls, outcomes, output and notices.

A client stays attached by heartbeats. It may repeat any question over another connection, because
calls are identified by their ids. Nothing is unpickled here.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import WSMsgType, web

from raysm.core.request.codec import from_json, to_json
from raysm.features.session.cluster.blobs import Blob
from raysm.features.session.cluster.calls import (
    MAX_WAIT_S,
    NO_SUCH_CALL,
    Call,
    choose_http_status,
    parse_seconds,
)
from raysm.features.session.cluster.host import SessionHost
from raysm.features.session.protocol import CallRequest, frame, unframe

MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a client's message. Larger values have connections of their own, and do not delay
heartbeats."""


class Clients:
    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._connections: set[_Connection] = set()

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        connection = _Connection(self._host, request.query.get("client", ""), socket, self.wake)
        self._connections.add(connection)
        try:
            await connection.live()
        finally:
            self._connections.discard(connection)
        return socket

    def wake(self, call: Call) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._host.loop.call_soon_threadsafe(self._mark, call)

    def _mark(self, call: Call) -> None:
        for connection in self._connections:
            connection.mark(call)

    def wake_all(self) -> None:
        for connection in self._connections:
            connection.news.set()


class _Connection:
    def __init__(
        self,
        host: SessionHost,
        client: str,
        socket: web.WebSocketResponse,
        wake: Callable[[Call], None],
    ) -> None:
        self._host = host
        self._client = client
        self._socket = socket
        self._wake = wake
        # Includes calls that the client sent over an earlier connection.
        self._calls_with_output = {
            call for call in host.calls.list_running() if call.request.client == client
        }
        self.news = asyncio.Event()
        self.news.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def mark(self, call: Call) -> None:
        # Other clients do not get the output unless they ask for it.
        if self._client == call.request.client:
            self._calls_with_output.add(call)
            self.news.set()

    async def live(self) -> None:
        self._host.lifetime.note_heartbeat(self._client, time.monotonic())
        self._begin(self._send_news())
        try:
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    self._on_message(json.loads(message.data))
                elif message.type is WSMsgType.BINARY:
                    self._begin(self._answer(message.data))
        finally:
            # The client stays attached for a while, because it may connect again.
            for task in self._tasks:
                task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_message(self, message: dict[str, Any]) -> None:
        if "delivered" in message:
            self._host.calls.deliver(str(message["delivered"]))
        now_s = time.monotonic()
        if message.get("leaves"):
            self._host.lifetime.note_departure(self._client, now_s)
        else:
            self._host.lifetime.note_heartbeat(self._client, now_s)

    async def _answer(self, content: bytes) -> None:
        head, body = unframe(content)
        number = {"ask": head.get("ask")}
        try:
            reply, outcome = await self._outcome(head, body)
        except Exception as error:  # without an answer the client would wait forever
            reply = {"status": choose_http_status(error), "error": str(error)}
            outcome = b""
        # A client that has disconnected asks again over its next connection.
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(frame(number | reply, outcome))

    async def _outcome(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        # Parsed first, so that a refused question starts nothing.
        id = str(head["call"])
        wait_s = parse_seconds(head.get("wait", 0))
        if head.get("request") is None:
            call = self._host.calls.get(id)
            if call is None:
                return {"status": NO_SUCH_CALL}, b""
        else:
            request = from_json(CallRequest, head["request"], "call")
            call = self._host.calls.start_once(
                id, request, None if head.get("large") else body, self._wake
            )
        # Checked first, because wait_for costs a timer and a task switch even if the call is done.
        if not call.done.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(call.done.wait(), min(wait_s, MAX_WAIT_S))
        # The client fetches a large outcome over a connection of its own.
        is_large = isinstance(call.outcome, Blob)
        reply = {"status": 200, "call": to_json(call.status), "elsewhere": is_large}
        return reply, b"" if isinstance(call.outcome, Blob) else call.outcome

    async def _send_news(self) -> None:
        # Output is sent from its beginning; the client skips what an earlier connection has
        # brought.
        positions: dict[str, int] = {}
        # Earlier notices are left out, because they may warn of an end that was put off.
        notices = len(self._host.notices)
        while not self._socket.closed:
            await self.news.wait()
            self.news.clear()
            while self._calls_with_output:
                call = self._calls_with_output.pop()
                for piece in call.output.read_from(positions.get(call.id, 0)):
                    positions[call.id] = piece.end
                    row = {"start": piece.start, "stream": piece.stream, "text": piece.text}
                    # A slow client delays only itself, and the output kept for it is limited.
                    await self._socket.send_json({"call": call.id, **row})
            for notice in self._host.notices[notices:]:
                notices += 1
                await self._socket.send_json({"notice": notice})

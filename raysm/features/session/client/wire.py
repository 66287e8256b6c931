"""The connection with a session's server.

One WebSocket carries calls and output, HTTP everything else; each large value has a separate
connection.
"""

import asyncio
import contextlib
import itertools
import json
import math
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from raysm.core.protocol import parcels
from raysm.core.protocol.connections import checked_connector
from raysm.core.protocol.parcels import Content, Piece, size_of
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, MissingDependency, RaysmError, ServiceError, SessionEnded
from raysm.features.session.protocol import HEARTBEAT_S, CallRequest, frame, unframe

if TYPE_CHECKING:
    import aiohttp

    from raysm.core.protocol.connections import OpenConnection


class Exchange:
    """Questions and their answers over one WebSocket."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self.socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}

    async def ask(self, head: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        # The call's id is not unique here: its sender and a follower may both ask for the same
        # call.
        number = next(self._numbers)
        answer: asyncio.Future[tuple[dict[str, Any], bytes]] = (
            asyncio.get_running_loop().create_future()
        )
        self._answers[number] = answer
        try:
            await self.socket.send_bytes(frame({"ask": number, **head}, body))
            return await answer
        finally:
            # Also after a cancellation, so that abandoned questions do not pile up.
            del self._answers[number]

    def on_answer(self, content: bytes) -> None:
        head, body = unframe(content)
        answer = self._answers.get(head["ask"])
        if answer is not None and not answer.done():
            answer.set_result((head, body))

    def end(self) -> None:
        # The same error as of a broken HTTP connection, so that the wire retries.
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the session broke"))


T = TypeVar("T")

RETRY_S = 120.0
"""How long to retry while the head does not answer and the service says that the job runs."""

STATUS_POLL_S = 2.0
"""How often to ask the service for the job's status during retries."""

IDLE_STATUS_POLL_S = 10.0
"""How often to ask it while the WebSocket is broken and no request waits."""

# A short first pause, because a replaced tunnel accepts WebSockets again within milliseconds.
FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 2.0
SOCKET_S = 0.5
"""How long a call waits for the WebSocket before the service is asked whether the job runs."""
# READ_S is longer than the LONG_POLL_S of calls, for which the server may hold an answer back.
CONNECT_S = 15.0
READ_S = 60.0

PING_S = 30.0
"""Interval of WebSocket pings. aiohttp closes the connection if a pong takes half as long; TCP
itself would take about 15 minutes to notice a connection that died while a laptop slept."""


class NoSuchCall(Exception):
    """The session does not know this call, because the request with it never arrived."""


def require_aiohttp() -> Any:
    try:
        import aiohttp
    except ImportError as error:
        raise MissingDependency(
            "a session needs aiohttp: python3 -m pip install 'raysm[interactive]'"
        ) from error
    return aiohttp


class Wire:
    """The connection with one server; belongs to one event loop.

    Attributes:
        client: The id of this client, which stays the same over all connections.
    """

    def __init__(
        self,
        address: Callable[[], str],
        open_connection: "OpenConnection",
        client: str,
        *,
        describe_end: Callable[[], str | None],
        on_message: Callable[[Mapping[str, Any]], None],
        retry_s: float = RETRY_S,
    ) -> None:
        self._aiohttp = require_aiohttp()
        self.client = client
        self._address = address
        self._open_connection = open_connection
        self._describe_end = describe_end
        self._on_message = on_message
        self._retry_s = retry_s
        self._ended: str | None = None
        """The reason for the session's end, once the service has reported it."""
        self._session: aiohttp.ClientSession | None = None
        self._listening: asyncio.Task[None] | None = None
        self._status_check: asyncio.Future[str | None] | None = None
        self._exchange: Exchange | None = None
        self._connected = asyncio.Event()
        self._threads = ThreadPoolExecutor(4, "session-values")

    async def open(self) -> None:
        # No total timeout, because a file of gigabytes may take long.
        timeout = self._aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        self._session = self._aiohttp.ClientSession(
            timeout=timeout, connector=checked_connector(self._open_connection)
        )
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await self.send_message({"leaves": True})
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            await self._session.close()

    # Requests

    async def json(self, method: str, path: str, **how: Any) -> Any:
        return json.loads(await self.request(method, path, **how))

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Make a request, retry it until it is answered, and return the answer's body."""
        return await self._retry(lambda: self._read(method, path, how))

    async def call(
        self, id: str, wait_s: float, request: CallRequest | None, body: Sequence[Piece] = ()
    ) -> tuple[Any, Content]:
        """Send a call and wait up to ``wait_s`` for its end; None asks for an earlier one.

        Returns the status as JSON and the outcome, which is empty while the call runs. Raises like
        ``request``.
        """
        # A large body gets a separate connection, so that it does not delay heartbeats and
        # output.
        is_large = size_of(body) > parcels.SMALL_BYTES
        head = {
            "call": id,
            "wait": wait_s,
            "request": None if request is None else to_json(request),
            "large": is_large,
        }
        return await self._retry(lambda: self._call(head, body))

    async def _call(self, head: Mapping[str, Any], body: Sequence[Piece]) -> tuple[Any, Content]:
        if head["large"]:
            await self._exchange_large({"put": head["call"], "bytes": size_of(body)}, body)
        if self._exchange is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._connected.wait(), SOCKET_S)
        if self._exchange is None:
            raise ConnectionError("the connection to the session is broken")
        reply, outcome = await self._exchange.ask(head, b"" if head["large"] else b"".join(body))
        _check_status(reply["status"], str(reply.get("error")))
        if reply["elsewhere"]:
            return reply["call"], await self._exchange_large({"get": head["call"]})
        return reply["call"], outcome

    async def _exchange_large(self, head: Mapping[str, Any], body: Sequence[Piece] = ()) -> Content:
        """Send or fetch one large value; return the fetched value. After an OSError, try again."""
        host, _, port = self._address().rpartition(":")
        async with asyncio.timeout(CONNECT_S):
            connection = await self._open_connection(host, int(port))
        # Blocking calls in a thread, because asyncio would copy each part.
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, _exchange, connection, head, body)
        finally:
            # If the call was abandoned, this ends the thread.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, path: str, **how: Any
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        """Yield the answer to a request in parts; for arguments and errors see ``request``."""
        async with await self._retry(lambda: self._send_request(method, path, how)) as answer:
            await _check(answer)
            yield answer

    async def _send_request(
        self, method: str, path: str, how: Mapping[str, Any]
    ) -> "aiohttp.ClientResponse":
        assert self._session is not None, "open() comes first"
        how = dict(how)
        body = how.pop("body", None)
        if body is not None:
            how["data"] = body()
        return await self._session.request(method, f"http://{self._address()}{path}", **how)

    async def _read(self, method: str, path: str, how: Mapping[str, Any]) -> bytes:
        async with await self._send_request(method, path, how) as answer:
            await _check(answer)
            return bytes(await answer.read())

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        # -inf: the first failure asks the service at once whether the session has ended.
        started_s = time.monotonic()
        checked_s = -math.inf
        pause_s = FIRST_PAUSE_S
        unanswered: RaysmError | None = None
        while self._ended is None:
            try:
                return await attempt()
            except (
                self._aiohttp.ClientConnectionError,
                self._aiohttp.ClientPayloadError,
                OSError,
            ) as error:
                now_s = time.monotonic()
                if now_s - checked_s > STATUS_POLL_S:
                    checked_s = now_s
                    unanswered = await self._check_end()
                if self._ended is not None:
                    break
                if now_s - started_s > self._retry_s:
                    raise unanswered or ServiceError(
                        f"the session's head has not answered for {now_s - started_s:.0f} s, "
                        f"though its job runs: {error}",
                        is_transient=True,
                    ) from error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
        raise SessionEnded(self._ended)

    async def _check_end(self) -> RaysmError | None:
        """Set ``_ended`` if the session has ended; return the service's error if that is unknown.

        A laptop that has no network, as after its sleep, reaches neither the session nor the
        service.
        """
        # All waiting calls share one check: a broken connection may affect a thousand of them.
        if self._status_check is None or self._status_check.done():
            # In a thread, because it calls the service.
            self._status_check = asyncio.get_running_loop().run_in_executor(
                None, self._describe_end
            )
        try:
            self._ended = self._ended or await asyncio.shield(self._status_check)
        except RaysmError as error:
            return error
        return None

    # Messages without an answer

    async def send_message(self, message: Mapping[str, Any]) -> None:
        # Messages may get lost: an outcome whose delivery is not confirmed is only kept longer.
        if self._exchange is not None:
            with contextlib.suppress(ConnectionError):
                await self._exchange.socket.send_str(json.dumps(message))

    async def _listen(self) -> None:
        assert self._session is not None
        pause_s = FIRST_PAUSE_S
        checked_s = -math.inf
        while self._ended is None:
            with contextlib.suppress(self._aiohttp.ClientError, OSError, TimeoutError):
                url = f"http://{self._address()}/events"
                async with self._session.ws_connect(
                    url, params={"client": self.client}, max_msg_size=0, heartbeat=PING_S
                ) as socket:
                    # The next failure starts with a short pause again.
                    pause_s = FIRST_PAUSE_S
                    await self._serve(socket, Exchange(socket))
            if time.monotonic() - checked_s > IDLE_STATUS_POLL_S:
                checked_s = time.monotonic()
                await self._check_end()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _serve(self, socket: "aiohttp.ClientWebSocketResponse", exchange: Exchange) -> None:
        self._exchange = exchange
        self._connected.set()
        heartbeat = asyncio.create_task(self._send_heartbeats(socket))
        kinds = self._aiohttp.WSMsgType
        try:
            async for message in socket:
                if message.type is kinds.BINARY:
                    exchange.on_answer(message.data)
                elif message.type is kinds.TEXT:
                    self._on_message(json.loads(message.data))
        finally:
            # Before exchange.end(), so that retries do not use this exchange.
            self._exchange = None
            self._connected.clear()
            exchange.end()
            heartbeat.cancel()

    async def _send_heartbeats(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                # The server takes any message as a heartbeat.
                await socket.send_str("{}")
                await asyncio.sleep(HEARTBEAT_S)


def _exchange(connection: socket.socket, head: Mapping[str, Any], body: Sequence[Piece]) -> Content:
    with connection:
        connection.settimeout(READ_S)
        parcels.send_line(connection, head, parcels.BULK)
        answer = parcels.receive_line(connection)
        if "error" in answer:
            raise InvalidRequest(answer["error"])
        if "get" not in head:
            parcels.send(connection, body)
            parcels.receive_line(connection)
            return b""
        content = parcels.memory(answer["bytes"])
        with memoryview(content) as view:
            parcels.receive_into(connection, view)
        return content


async def _check(answer: "aiohttp.ClientResponse") -> None:
    if answer.status == 200:
        return
    try:
        text = str(json.loads(await answer.read())["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the session answers with HTTP {answer.status}"
    _check_status(answer.status, text)


def _check_status(status: int, text: str) -> None:
    if status == 200:
        return
    # 404 is only for unknown calls; a missing file is a 400 with a message.
    if status == 404:
        raise NoSuchCall(text)
    kinds: Mapping[int, type[RaysmError]] = {400: InvalidRequest, 410: SessionEnded}
    raise kinds.get(status, RaysmError)(text)

"""The connection with a session's server: one WebSocket for calls and output, HTTP for large outcomes."""

import asyncio
import contextlib
import functools
import io
import itertools
import json
import math
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from raysm.contract.connections import checked_connector, connect_proved
from raysm.contract.parcels import (
    BULK,
    SMALL_BYTES,
    Content,
    Piece,
    memory,
    receive_into,
    receive_line,
    send,
    send_line,
    size_of,
)
from raysm.contract.session import HEARTBEAT_S, MAX_BODY_BYTES, CallRequest, frame, unframe
from raysm.errors import InvalidRequest, MissingDependency, RaysmError, ServiceError, SessionEnded
from raysm.request.codec import to_json

if TYPE_CHECKING:
    import aiohttp
if TYPE_CHECKING:
    import aiohttp

__all__ = ["Exchange", "NoSuchCall", "Wire", "require_aiohttp"]


class Exchange:
    """One WebSocket's questions; all of it in one event loop."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        """Begin with none.

        Args:
            socket: Open.
        """
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}

    async def ask(self, head: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Send a question, and wait for its answer, for as long as the connection lives.

        Raises:
            ConnectionError: It broke; whether the question has arrived nobody knows.
        """
        # Not the call's id: the same call may be asked for twice, by its sender and by whoever follows it.
        number = next(self._numbers)
        answer: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._socket.send_bytes(frame({"ask": number, **head}, body))
            return await answer
        finally:
            # Who waits no more, in whatever way, leaves nothing behind: calls may be given up by the thousand.
            del self._answers[number]

    def hear(self, content: bytes) -> None:
        """Take an answer."""
        head, body = unframe(content)
        answer = self._answers.get(head["ask"])
        # None is left of a question that nobody waits for any more.
        if answer is not None and not answer.done():
            answer.set_result((head, body))

    def end(self) -> None:
        """The connection broke: no more answers come by it."""
        # As a connection of HTTP breaks: the wire asks again, and the server knows the call by its id.
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the session broke"))


T = TypeVar("T")

PATIENCE_S = 120.0
"""For which the head may be away, as long as the service says that the job runs."""

LOOK_S = 2.0
"""How often the service is asked meanwhile whether it does."""

IDLE_LOOK_S = 10.0
"""How often it is asked while no request waits, and the connection is away."""

# Short at first: a tunnel's WebSocket that is replaced is back within milliseconds.
FIRST_PAUSE_S, MOST_PAUSE_S = 0.05, 2.0
LARGE_BYTES = 1 << 19
# READ_S is above calls' WAIT_S, for which the server holds an answer back on purpose.
CONNECT_S, READ_S = 15.0, 60.0

SILENCE_S = 30.0
"""After so long the server is asked for a sign of life, and after half as long again the connection is made anew: TCP
itself takes a quarter of an hour to see that a laptop has slept meanwhile."""


class NoSuchCall(Exception):
    """The session knows no call of that id: the request that was to bring it never arrived."""


def require_aiohttp() -> Any:
    """Return the package.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        import aiohttp
    except ImportError as error:
        raise MissingDependency("a session needs aiohttp: python3 -m pip install 'raysm[interactive]'") from error
    return aiohttp


class Wire:
    """Speaks with one server; all of it in one event loop.

    Attributes:
        client: The name by which the server knows this client again.
    """

    def __init__(
        self,
        address: Callable[[], str],
        token: str,
        server_port: int,
        client: str,
        why_ended: Callable[[], str | None],
        hear: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """Connect to nothing yet.

        Args:
            address: Returns ``127.0.0.1:PORT``, which leads to the server.
            token: The job's.
            server_port: Where the server listens, on the loopback of its own machine.
            client: A name of its own.
            why_ended: Asks the service; returns why the session has ended, None while it runs.
            hear: Called in the loop with what the server says by itself.
        """
        self._aiohttp = require_aiohttp()
        self.client = client
        self._address, self._why_ended, self._hear = address, why_ended, hear
        self._open_connection = functools.partial(connect_proved, token=token, server_port=server_port)
        self._ended: str | None = None
        """Why the session has ended, once the service has said so."""
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._listening: asyncio.Task[None] | None = None
        self._looking: asyncio.Future[str | None] | None = None
        self._exchange: Exchange | None = None
        self._threads = ThreadPoolExecutor(4, "session-values")

    async def open(self) -> None:
        """Begin to listen, and to say that this client is there."""
        # No total: a file of gigabytes takes as long as it takes while bytes still come.
        timeout = self._aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        self._session = self._aiohttp.ClientSession(timeout=timeout, connector=checked_connector(self._open_connection))
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Say goodbye."""
        with contextlib.suppress(Exception):
            await self.tell({"leaves": True})
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            await self._session.close()

    # Requests

    async def json(self, method: str, path: str, **how: Any) -> Any:
        """Make a request; return the JSON that answers it."""
        return json.loads(await self.request(method, path, **how))

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Make a request until it is answered; return the answer's body.

        Args:
            method: ``GET`` …
            path: ``/calls``.
            how: What aiohttp takes beside: ``json``, ``data``, ``params``; or ``body``, which opens what is sent, anew
                each time: what was sent halfway cannot be sent again.

        Raises:
            NoSuchCall: It is about a call that the server does not know.
            InvalidRequest: The server refuses what is asked for.
            SessionEnded: The session has ended, or is ending.
            RaysmError: The server failed, or does not answer.
        """
        if isinstance(how.get("data"), bytes):
            check_body(len(how["data"]))
        return await self._patiently(lambda: self._read(method, path, how))

    async def call(
        self, id: str, wait_s: float, request: CallRequest | None, body: Sequence[Piece] = ()
    ) -> tuple[Any, Content]:
        """Have a call executed, unless it is already, and wait for its end, but not for long.

        Args:
            id: By which the session knows it.
            wait_s: For which the server holds its answer back.
            request: What is asked for; None asks for a call that was sent before.
            body: The pickle or the source, in pieces.

        Returns:
            How it is, as JSON, and its outcome; empty while it has none.

        Raises:
            NoSuchCall: It was never sent.
            RaysmError: As ``request`` says.
        """
        # Large bodies and outcomes would hold up heartbeats and what others print.
        is_large = size_of(body) > SMALL_BYTES
        head = {"call": id, "wait": wait_s, "request": None if request is None else to_json(request), "large": is_large}
        return await self._patiently(lambda: self._call(head, body))

    async def _call(self, head: Mapping[str, Any], body: Sequence[Piece]) -> tuple[Any, Content]:
        if head["large"]:
            await self._by_own_connection({"put": head["call"], "bytes": size_of(body)}, body)
        small = b"" if head["large"] else b"".join(body)
        # Where the connection is away just now, the other way tells at once whether the server is.
        exchange = self._exchange
        reply, outcome = await (self._call_by_http(head, small) if exchange is None else exchange.ask(head, small))
        _check_status(reply.get("status", 200), str(reply.get("error")))
        if reply["elsewhere"]:
            return reply["call"], await self._by_own_connection({"get": head["call"]})
        return reply["call"], outcome

    async def _call_by_http(self, head: Mapping[str, Any], body: bytes) -> tuple[Any, bytes]:
        how: dict[str, Any] = {"params": {"wait": head["wait"], "large": int(head["large"])}}
        if head["request"] is None:
            return unframe(await self._read("GET", f"/calls/{head['call']}", how))
        return unframe(
            await self._read("POST", f"/calls/{head['call']}", {**how, "data": frame(head["request"], body)})
        )

    async def _by_own_connection(self, head: Mapping[str, Any], body: Sequence[Piece] = ()) -> Content:
        """Send or fetch one large value; return what was fetched.

        Raises:
            OSError: The connection broke; it is to be done again.
        """
        host, _, port = self._address().rpartition(":")
        async with asyncio.timeout(CONNECT_S):
            connection = await self._open_connection(host, int(port))
        # In a thread, by calls that block: asyncio would copy each part.
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, _exchange, connection, head, body)
        finally:
            # Also of a call that is given up: the thread ends with its connection.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.asynccontextmanager
    async def streamed(self, method: str, path: str, **how: Any) -> AsyncIterator["aiohttp.ClientResponse"]:
        """Yield the answer to a request that is too large for memory; takes and raises what ``request`` does."""
        async with await self._patiently(lambda: self._begin(method, path, how)) as answer:
            await _check(answer)
            yield answer

    async def _begin(self, method: str, path: str, how: Mapping[str, Any]) -> "aiohttp.ClientResponse":
        assert self._session is not None, "open() comes first"
        how = dict(how)
        body = how.pop("body", None)
        if body is not None:
            how["data"] = body()
        elif len(how.get("data") or b"") > LARGE_BYTES:
            # Of more than a megabyte in one piece aiohttp warns: it would hold the loop.
            how["data"] = io.BytesIO(how["data"])
        return await self._session.request(method, f"http://{self._address()}{path}", **how)

    async def _read(self, method: str, path: str, how: Mapping[str, Any]) -> bytes:
        async with await self._begin(method, path, how) as answer:
            await _check(answer)
            return bytes(await answer.read())

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        # Never looked: the first failure asks at once, so that a session that has ended is not waited for.
        began_s, looked_s, pause_s = time.monotonic(), -math.inf, FIRST_PAUSE_S
        while True:
            if self._ended is not None:
                raise SessionEnded(self._ended)
            try:
                return await attempt()
            except (self._aiohttp.ClientConnectionError, self._aiohttp.ClientPayloadError, OSError) as error:
                now_s = time.monotonic()
                if now_s - looked_s > LOOK_S:
                    looked_s = now_s
                    await self._check_end()
                if now_s - began_s > PATIENCE_S:
                    raise ServiceError(
                        f"the session's head has not answered for {now_s - began_s:.0f} s, and the service says that "
                        f"its job runs: {error}",
                        is_transient=True,
                    ) from error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)

    async def _check_end(self) -> None:
        if self._looking is None or self._looking.done():
            # In a thread: it asks the service, which may take its time.
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._why_ended)
        # One look for all that wait just now: of a thousand calls whose connection breaks each would take its own.
        why = await asyncio.shield(self._looking)
        if why is not None:
            self._ended = why
            raise SessionEnded(why)

    # What comes by itself

    async def tell(self, message: Mapping[str, Any]) -> None:
        """Say something; nothing where there is no connection just now."""
        # What is told so is never needed for a result: an outcome that is not confirmed is merely kept longer.
        socket = self._socket
        if socket is not None and not socket.closed:
            with contextlib.suppress(ConnectionError):
                await socket.send_str(json.dumps(message))

    async def _listen(self) -> None:
        assert self._session is not None
        pause_s, looked_s = FIRST_PAUSE_S, -math.inf
        while self._ended is None:
            with contextlib.suppress(self._aiohttp.ClientError, OSError, TimeoutError):
                url = f"http://{self._address()}/events"
                async with self._session.ws_connect(
                    url, params={"client": self.client}, max_msg_size=0, heartbeat=SILENCE_S
                ) as socket:
                    # Begun anew: a head that was away and is back does not pay for the pauses of before.
                    self._socket, pause_s = socket, FIRST_PAUSE_S
                    await self._live(socket, Exchange(socket))
            if time.monotonic() - looked_s > IDLE_LOOK_S:
                looked_s = time.monotonic()
                # An end is kept for whoever asks next, and ends this loop; a service that is away is asked again.
                with contextlib.suppress(RaysmError):
                    await self._check_end()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    async def _live(self, socket: "aiohttp.ClientWebSocketResponse", exchange: Exchange) -> None:
        self._exchange = exchange
        beating = asyncio.create_task(self._beat(socket))
        kinds = self._aiohttp.WSMsgType
        try:
            async for message in socket:
                if message.type is kinds.BINARY:
                    exchange.hear(message.data)
                elif message.type is kinds.TEXT:
                    self._hear(json.loads(message.data))
        finally:
            # First: who asks again must not ask by this one.
            self._exchange = None
            exchange.end()
            beating.cancel()

    async def _beat(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                # Any message is a sign of life: the server counts the clients that it has heard of lately.
                await socket.send_str("{}")
                await asyncio.sleep(HEARTBEAT_S)


def _exchange(connection: socket.socket, head: Mapping[str, Any], body: Sequence[Piece]) -> Content:
    with connection:
        connection.settimeout(READ_S)
        send_line(connection, head, BULK)
        answer = receive_line(connection)
        if "error" in answer:
            raise InvalidRequest(answer["error"])
        if "get" not in head:
            send(connection, body)
            receive_line(connection)
            return b""
        content = memory(answer["bytes"])
        with memoryview(content) as view:
            receive_into(connection, view)
        return content


async def _check(answer: "aiohttp.ClientResponse") -> None:
    if answer.status == 200:
        return
    try:
        text = str(json.loads(await answer.read())["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the session answers with HTTP {answer.status}"
    _check_status(answer.status, text)


def check_body(size_bytes: int) -> None:
    """Refuse what the session would not take, before it is sent.

    Raises:
        InvalidRequest: It is larger than ``MAX_BODY_BYTES``.
    """
    if size_bytes > MAX_BODY_BYTES:
        raise InvalidRequest(
            f"the call and its arguments are {size_bytes / 2**30:.1f} GiB, and a session takes at most "
            f"{MAX_BODY_BYTES >> 30} GiB at once; send the data as a file, session.put(PATH), or push it in parts"
        )


def _check_status(status: int, text: str) -> None:
    if status == 200:
        return
    # Calls alone are looked for by id: a file that is not there is a 400 with a sentence.
    if status == 404:
        raise NoSuchCall
    kinds: Mapping[int, type[RaysmError]] = {400: InvalidRequest, 401: ServiceError, 410: SessionEnded}
    raise kinds.get(status, RaysmError)(text)

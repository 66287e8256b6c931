"""A session's data channel from this side: opened, carried by one WebSocket after the other, ended.

What flows in are payloads and what the agent sends; what flows out are the agent's messages in their order. The
service closes each WebSocket after about an hour, and the session that was idle for 20 minutes: so a new one is opened
every quarter of an hour, by ResumeSession, which AWS's documents say begins the time of idleness anew
(https://docs.aws.amazon.com/systems-manager/latest/userguide/session-preferences-timeout.html).
"""

import asyncio
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from raysm.client.tunnel.official_plugin import INSTALL
from raysm.client.tunnel.patience import PATIENCE_S, Patience
from raysm.client.tunnel.session import Document, Pass, Sessions
from raysm.contract.ssm import handshake
from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import CHANNEL_CLOSED, INPUT, Flag, Frame, PayloadType, flag
from raysm.errors import MissingDependency, ServiceError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Channel", "import_aiohttp"]

REFRESH_S = 900.0
HEARTBEAT_S = 30.0
"""Between two pings: a laptop that slept, or lost its network, notices within this time that its WebSocket is dead."""
AGREE_S = 60.0
"""The agent's handshake takes less than a second; a new process of it some."""
CONNECT_S = 30.0
"""For a WebSocket to open: a network that swallows what it gets says nothing, and aiohttp alone waits 5 minutes."""
FRUITFUL_S = 5.0
"""A WebSocket that brought nothing and did not last so long is a try that failed."""
# Each step of a goodbye: a laptop without a network is not to wait for minutes to close a tunnel.
END_S = 5.0

_log = logging.getLogger("raysm")


class Channel:
    """One session, from its start to its end.

    Attributes:
        agreement: What the agent is, and what session it made; set once it is open.
    """

    agreement: handshake.Agreement

    def __init__(
        self, sessions: Sessions, deliver: Callable[[Frame], Awaitable[None]], *, refresh_s: float = REFRESH_S
    ) -> None:
        """Begin nothing yet.

        Args:
            sessions: Where sessions are to be had.
            deliver: Is given each message of the agent, and awaited before the next one is taken.
            refresh_s: Seconds after which a WebSocket is replaced.
        """
        self._sessions = sessions
        self._deliver = deliver
        self._refresh_s = refresh_s
        self._conversation = Conversation(self._take_frame, sends=INPUT)
        self._patience = Patience()
        self._farewell: OSError | None = None
        self._task: asyncio.Task[None] | None = None
        self._pass: Pass | None = None
        self._agreed: asyncio.Future[handshake.Agreement] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()

    @property
    def session(self) -> str:
        """The session's id; empty before it is open."""
        return self._pass.session if self._pass is not None else ""

    @property
    def error(self) -> OSError | None:
        """Why it has ended; None while it goes on."""
        return self._conversation.error

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more; what came before may still be on its way to whom it is for."""
        return self.error is not None or self._farewell is not None

    async def open(self, target: str, document: Document) -> handshake.Agreement:
        """Begin the session, and agree with its agent.

        Raises:
            ServiceError: It is refused, or the agent does not agree.
            MissingDependency: aiohttp is not installed.
        """
        import_aiohttp()
        # Whatever fails from here on, a session has begun: close() ends it at the service too.
        self._pass = await self._sessions.start(target, document)
        self._task = asyncio.ensure_future(self._run(self._pass))
        try:
            async with asyncio.timeout(AGREE_S):
                self.agreement = await self._agreed
        except BaseException as error:
            await self.close()
            # Every other error has its own words already.
            if isinstance(error, TimeoutError):
                raise ServiceError(f"the agent of {target} did not begin the session within {AGREE_S:.0f} s") from error
            raise
        return self.agreement

    async def send(self, payload_type: PayloadType, payload: bytes) -> None:
        """Send at most one message's payload; return when there is room for the next one.

        Raises:
            OSError: The session has ended.
        """
        await self._conversation.send(payload_type, payload)

    async def close(self) -> None:
        """End the session, here and at the service; harmless when repeated."""
        if self._task is None:
            return
        task, self._task = self._task, None
        # As the official client ends: by the flag to the agent, and behind it TerminateSession to the service.
        if not self.is_over and self._agreed.done():
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(END_S):
                    await self.send(PayloadType.FLAG, flag(Flag.TERMINATE_SESSION))
                    await self._conversation.drain(END_S)
        self._end(ConnectionResetError("the session was closed"))
        # Only after the flag was sent: this is the task that carries it.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # It may have ended already, and whoever closes it cannot do more than ask.
        with contextlib.suppress(ServiceError, TimeoutError):
            async with asyncio.timeout(END_S):
                await self._sessions.terminate(self.session)

    def _end(self, error: OSError) -> None:
        self._conversation.end(error)
        self._fail(f"the session ended before it began: {error}")
        self.ended.set()

    def _fail(self, reason: str, *, code: str = "") -> None:
        """Tell whoever waits for the session to begin that it does not."""
        if not self._agreed.done():
            self._agreed.set_exception(ServiceError(reason, code=code))
            self._agreed.exception()  # where nobody waits for it any more, it is no error that nobody saw

    async def _run(self, first: Pass) -> None:
        """Carry the session by one WebSocket after the other."""
        try:
            # One after the other, each by a token of its own: one lets a single WebSocket in.
            following: Pass | None = first
            while following is not None and not self.is_over:
                # What the network does to it, whether it opens or not: another one is tried.
                with contextlib.suppress(OSError, TimeoutError, *_errors()):
                    await self._carry(following)
                if not self.is_over:
                    following = await self._resume()
            # What came before the end is delivered first: the agent does not wait until it is.
            await self._conversation.settle()
            self._end(self._farewell or ConnectionResetError("the service has ended the session"))
        except ServiceError as error:
            self._end(ConnectionAbortedError(str(error)))
        # A defect of ours: whoever waits for the session must still hear that it is over.
        except Exception as error:
            self._end(ConnectionAbortedError(f"{type(error).__name__}: {error}"))
            raise

    async def _resume(self) -> Pass | None:
        """Return what lets another WebSocket in; None where the session has ended.

        Raises:
            ServiceError: The service refuses, or has been away for minutes.
        """
        while True:
            await asyncio.sleep(self._patience.pause_s)
            try:
                return await self._sessions.resume(self.session)
            except ServiceError as error:
                if not error.is_transient or self._patience.is_over(time.monotonic()):
                    raise
                self._patience.failed(time.monotonic())
                _log.debug("the session %s cannot be resumed just now: %s", self.session, error)

    async def _carry(self, entry: Pass) -> None:
        """Open one WebSocket, and pass on what comes by it until it closes, or is to be replaced.

        Raises:
            ServiceError: It brings nothing, as those before it for minutes.
        """
        began_s = time.monotonic()
        if self._patience.is_over(began_s):
            raise ServiceError(f"the data channel of {self.session} cannot be reached: {PATIENCE_S:.0f} s of tries")
        # Failed until it has brought something: a service that resumes the session, and whose data channel cannot be
        # reached, would be asked as fast as it answers.
        self._patience.failed(began_s)
        async with _web_session(entry.url) as client, _opened(client, entry) as socket:
            self._conversation.attach(socket.send_bytes)
            # Closed, not cancelled: what has been taken of it is passed on to its end.
            closing = asyncio.ensure_future(self._close_in_time(socket))
            try:
                await self._take(socket)
            finally:
                closing.cancel()
                self._conversation.detach()
                if time.monotonic() - began_s > FRUITFUL_S:
                    self._patience.succeeded()

    async def _close_in_time(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        # Also where the conversation has ended by itself: nothing more may come that would tell.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._refresh_s):
                await self._conversation.ended.wait()
        await socket.close()

    async def _take(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        aiohttp = import_aiohttp()
        async for message in socket:
            # The service writes text only about itself: what counts comes as frames.
            if message.type != aiohttp.WSMsgType.BINARY:
                continue
            self._patience.succeeded()
            await self._conversation.receive(message.data)
            if self.is_over:
                return

    async def _take_frame(self, frame: Frame) -> None:
        if frame.type == CHANNEL_CLOSED:
            self._farewell = ConnectionResetError(_reason(frame))
        elif frame.payload_type == PayloadType.HANDSHAKE_REQUEST:
            await self._agree(frame)
        elif frame.payload_type == PayloadType.HANDSHAKE_COMPLETE:
            if not self._agreed.done():
                self._agreed.set_result(self.agreement)
        else:
            await self._deliver(frame)

    async def _agree(self, frame: Frame) -> None:
        # Answered also where it cannot be had: so the agent ends its side, and logs why.
        self.agreement, response = handshake.answer(frame.document())
        await self.send(PayloadType.HANDSHAKE_RESPONSE, response)
        if self.agreement.refused:
            self._fail(
                f"the agent wants {self.agreement.refused}, which raysm does not speak: the account's Session Manager "
                f"preferences ask for it in shells (tunnels are free of it); {INSTALL}",
                code=self.agreement.refused,
            )


def _web_session(url: str) -> "aiohttp.ClientSession":
    host = urlsplit(url).hostname or ""
    # The proxy of this machine's way out knows no loopback.
    session: aiohttp.ClientSession = import_aiohttp().ClientSession(trust_env=host not in ("127.0.0.1", "localhost"))
    return session


@contextlib.asynccontextmanager
async def _opened(client: "aiohttp.ClientSession", entry: Pass) -> "AsyncIterator[aiohttp.ClientWebSocketResponse]":
    """A WebSocket that has said who it is."""
    async with asyncio.timeout(CONNECT_S):
        # No limit of size: SSM's messages are small, and its own limits are its business.
        socket = await client.ws_connect(entry.url, heartbeat=HEARTBEAT_S, max_msg_size=0)
    try:
        await socket.send_str(_opening(entry))
        yield socket
    finally:
        await socket.close()


def _opening(entry: Pass) -> str:
    return json.dumps(
        {
            # As the official client sends it (github.com/aws/session-manager-plugin, OpenDataChannelInput).
            "MessageSchemaVersion": "1.0",
            "RequestId": str(uuid.uuid4()),
            "TokenValue": entry.token,
            "ClientId": str(uuid.uuid4()),
            "ClientVersion": handshake.CLIENT_VERSION,
        }
    )


def _reason(frame: Frame) -> str:
    try:
        return str(frame.document().get("Output") or "the service has closed the session")
    except ValueError:
        return "the service has closed the session"


def _errors() -> tuple[type[Exception], ...]:
    return (import_aiohttp().ClientError,)


def import_aiohttp() -> Any:
    """Return the package by which WebSockets are spoken: on first use, for who only submits jobs need not have it.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        import aiohttp
    except ModuleNotFoundError as error:
        raise MissingDependency("a tunnel needs aiohttp: python3 -m pip install 'raysm[interactive]'") from error
    return aiohttp

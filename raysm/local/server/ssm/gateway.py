"""The service between clients and agents: who comes with a session's token is let in to its data channel.

What flows in are sockets whose request asks for a WebSocket, taken over from the server's own threads; everything here
happens in one loop, in a thread of its own.
"""

import asyncio
import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from raysm.contract.loop_thread import LoopThread
from raysm.contract.ssm.conversation import Transmit
from raysm.local.instances import Instance
from raysm.local.scenario import Ssm
from raysm.local.server.ssm.agent import Agent
from raysm.local.server.ssm.documents import Work

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["PATH", "Gateway"]

T = TypeVar("T")

PATH = "/v1/data-channel/"
"""Below it lie the data channels, by the ids of their sessions, as on AWS."""
OPENING_S = 10.0
"""For the first message of a WebSocket, which has the token."""
REFUSED = 1008
"""Policy violation, as RFC 6455 has it."""


class Gateway:
    """All sessions, and the loop in which they are served.

    Attributes:
        is_permitted: Whether the roles of jobs let their agents connect.
    """

    def __init__(self, switches: Ssm, chance: Random) -> None:
        """Serve as ``switches`` say; nothing runs before the first session."""
        self._switches = switches
        self.is_permitted = switches.permitted
        self._chance = chance
        # Touched in the loop alone; requests come in threads of the server.
        self._agents: dict[str, Agent] = {}
        self._tokens: dict[str, str] = {}
        self._loop: LoopThread | None = None
        self._lock = threading.Lock()

    def start(self, instance: Instance, work: Work) -> tuple[str, str]:
        """Begin a session; return its id and the token that lets one WebSocket in."""
        # AWS's ids end so, behind the name of whoever asked: 17 hexadecimal digits.
        session = f"raysm-{secrets.token_hex(9)[:17]}"
        return session, self._call(self._start(session, instance, work))

    def resume(self, session: str) -> str | None:
        """Return a new token of a session; None where there is none such."""
        return self._call(self._resume(session))

    def terminate(self, session: str) -> None:
        """End a session; one that is not there has ended."""
        self._call(self._terminate(session))

    def adopt(self, connection: socket.socket, head: bytes) -> None:
        """Serve a connection as a data channel until it is closed.

        Args:
            connection: Stays the caller's.
            head: Its request, up to the empty line.
        """
        # A descriptor of its own: werkzeug closes its one when the request is over, asyncio this one.
        duplicate = socket.socket(fileno=socket.dup(connection.fileno()))
        duplicate.setblocking(False)
        # The gateway ends, and with it every channel.
        with contextlib.suppress(CancelledError):
            self._call(self._serve(duplicate, head))

    def close(self) -> None:
        """End every session, and the loop."""
        if self._loop is None:
            return
        self._call(self._end_all())
        self._loop.close()
        self._loop = None

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                # Only now: most servers never have a session.
                self._loop = LoopThread("ssm")
        return self._loop.run(coroutine)

    async def _start(self, session: str, instance: Instance, work: Work) -> str:
        agent = Agent(session, instance, work, multiplexing=self._switches.multiplexing, idle_s=self._switches.idle_s)
        self._agents[session] = agent
        agent.start()
        return self._new_token(session)

    def _new_token(self, session: str) -> str:
        # The one before, if nobody has come with it, is good for nothing any more.
        self._tokens[session] = secrets.token_urlsafe(48)
        return self._tokens[session]

    async def _resume(self, session: str) -> str | None:
        agent = self._agents.get(session)
        if agent is None or agent.ended.is_set():
            return None
        # https://docs.aws.amazon.com/systems-manager/latest/userguide/session-preferences-timeout.html: it begins anew.
        agent.hear()
        return self._new_token(session)

    async def _terminate(self, session: str) -> None:
        agent = self._agents.pop(session, None)
        self._tokens.pop(session, None)
        if agent is not None:
            await agent.end("")

    async def _end_all(self) -> None:
        for session in list(self._agents):
            await self._terminate(session)

    async def _serve(self, connection: socket.socket, head: bytes) -> None:
        from aiohttp import web

        closed = asyncio.Event()

        async def handle(request: "web.BaseRequest") -> "web.StreamResponse":
            # Of whatever size: frames check their own lengths.
            channel = web.WebSocketResponse(max_msg_size=0)
            try:
                await channel.prepare(request)
                await self._admit(channel, request)
            except ConnectionResetError:
                # Who asked has gone as it connected, by a Ctrl-C: no fault of the server's. A channel that was not
                # opened cannot be given back: aiohttp would close it.
                return web.Response()
            finally:
                closed.set()
            return channel

        # One for each connection: aiohttp has the protocol, the connection was accepted by somebody else.
        server = web.Server(handle, access_log=None)
        protocol = server()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)
        # The request was read by the server that all other services share: here it is told anew.
        protocol.data_received(head)
        try:
            await closed.wait()
        finally:
            transport.close()
            await server.shutdown(0)

    async def _admit(self, channel: "web.WebSocketResponse", request: "web.BaseRequest") -> None:
        session = request.path.removeprefix(PATH)
        agent = self._agents.get(session)
        # One answer to all strangers: whether there is such a session is none of their business.
        if not await self._knows(channel, session) or agent is None or agent.ended.is_set():
            await channel.close(code=REFUSED)
            return
        closing = asyncio.ensure_future(self._cut(request))
        ended = asyncio.ensure_future(_close_at_end(agent, channel))
        transmit = self._lossy(channel.send_bytes)
        try:
            agent.attach(transmit)
            receive = self._lossy(agent.receive)
            async for message in channel:
                if isinstance(message.data, bytes):
                    await receive(message.data)
        finally:
            agent.detach(transmit)
            closing.cancel()
            ended.cancel()

    async def _knows(self, channel: "web.WebSocketResponse", session: str) -> bool:
        """Whether the first message has the session's token, which lets in once."""
        with contextlib.suppress(TimeoutError, TypeError, ValueError, AttributeError):
            opening = json.loads(await channel.receive_str(timeout=OPENING_S))
            token = self._tokens.get(session, "")
            # An empty token is none: where a session is not known, "" would equal "".
            if token and secrets.compare_digest(str(opening.get("TokenValue")).encode(), token.encode()):
                del self._tokens[session]
                return True
        return False

    async def _cut(self, request: "web.BaseRequest") -> None:
        """Close the connection where the scenario wants it, without a word: what is on its way is lost."""
        if self._switches.close_every_s and request.transport is not None:
            await asyncio.sleep(self._switches.close_every_s)
            # Not closed: a close would first send what is still to be sent.
            request.transport.abort()

    def _lossy(self, pass_on: Transmit) -> Transmit:
        """Return what passes messages on as a network does: not all of them, and some twice."""
        if not (self._switches.lost or self._switches.doubled):
            return pass_on

        async def lossy(data: bytes) -> None:
            if self._chance.random() < self._switches.lost:
                return
            await pass_on(data)
            if self._chance.random() < self._switches.doubled:
                await pass_on(data)

        return lossy


async def _close_at_end(agent: Agent, channel: "web.WebSocketResponse") -> None:
    await agent.ended.wait()
    await channel.close()

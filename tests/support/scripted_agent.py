"""A service of sessions whose agent does what a test says, before the client's own data channel."""

import contextlib
import json

from aiohttp import web

from raysm.client.tunnel.session import Pass
from raysm.contract.ssm import handshake
from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import OUTPUT, PayloadType

__all__ = ["ScriptedAgent"]


class ScriptedAgent:
    """Lets each session in by any token.

    Attributes:
        actions: What the agent asks for in its handshake.
        outputs: What it says once the client has answered.
        last: A message that comes then, and nothing after it.
        dumb: How many of the next WebSockets are closed without a word.
        openings: What clients said first.
        documents: What sessions were begun for.
    """

    def __init__(self, actions=(), *, outputs=(), last=None, dumb=0):
        self.actions, self.outputs, self.last, self.dumb = actions, outputs, last, dumb
        self.openings, self.documents, self.resumed, self.typed = [], [], 0, []

    @contextlib.asynccontextmanager
    async def served(self):
        runner = web.ServerRunner(web.Server(self._serve))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request):
        self._channel = web.WebSocketResponse()
        await self._channel.prepare(request)
        self.openings.append(json.loads(await self._channel.receive_str()))
        if self.dumb:
            self.dumb -= 1
            return self._channel
        self._agent = Conversation(self._take, sends=OUTPUT)
        self._agent.attach(self._channel.send_bytes)
        asked = {"AgentVersion": "3.3.40.0", "RequestedClientActions": list(self.actions)}
        await self._agent.send(PayloadType.HANDSHAKE_REQUEST, json.dumps(asked).encode())
        if self.last is not None and not self.outputs:
            await self._channel.send_bytes(self.last)
        async for message in self._channel:
            await self._agent.receive(message.data)
        self._agent.end(ConnectionResetError("over"))
        return self._channel

    async def _take(self, frame):
        if frame.payload_type != PayloadType.HANDSHAKE_RESPONSE:
            self.typed.append(frame)
            return
        await self._agent.send(PayloadType.HANDSHAKE_COMPLETE, handshake.complete(0.0))
        for output in self.outputs:
            await self._agent.send(PayloadType.OUTPUT, output)
        if self.last is not None and self.outputs:
            await self._channel.send_bytes(self.last)

    # As the client's ``Sessions`` has it

    async def start(self, target, document):
        self.documents.append(document)
        return self._pass()

    async def resume(self, session):
        self.resumed += 1
        return self._pass() if self.dumb else None

    async def terminate(self, session):
        pass

    def _pass(self):
        return Pass(session="s-1", url=f"ws://127.0.0.1:{self.port}/", token="secret-of-s-1")

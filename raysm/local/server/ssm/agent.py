"""One session at its agent's end: handshake, work, end; what carries it comes and goes.

What flows in are a client's messages, by one WebSocket after the other; what flows out is the work's output.
"""

import asyncio
import contextlib
from collections.abc import Callable

from raysm.contract.ssm import handshake
from raysm.contract.ssm.conversation import Conversation, Transmit
from raysm.contract.ssm.frames import CHANNEL_CLOSED, OUTPUT, Frame, PayloadType, notice
from raysm.local.instances import Instance
from raysm.local.server.ssm.documents import MULTIPLEXES, PLAIN, Work
from raysm.local.server.ssm.plugin import Ends, Plugin

__all__ = ["Agent"]

LAST_WORDS_S = 2.0
"""For the message that says that the session has ended, where the line takes nothing any more."""
AWAY_S = 60.0
"""How long a client may be away that has not taken all yet. AWS's agent waits 2 s for its last messages, wherever the
client is; but it sends all at once, while ours keeps what is above its window until whoever reads has taken the rest:
that may be a pager, before which somebody thinks."""
LOOK_S = 1.0
ANSWER_S = 60.0
"""For a client to come, and to answer the handshake."""
MUX_CLIENT = (1, 1, 70)
"""From this version on clients multiplex; an agent does so with no older one."""


class Agent:
    """An agent that serves one session; everything of it happens in one loop.

    Attributes:
        session: The session's id.
        ended: Set when it is over.
    """

    def __init__(self, session: str, instance: Instance, work: Work, *, multiplexing: bool, idle_s: float) -> None:
        """Begin nothing before ``start``.

        Args:
            session: Its id.
            instance: In which it works.
            work: What for.
            multiplexing: Whether it is an agent that can.
            idle_s: Seconds without a word of the client after which it ends.
        """
        self.session = session
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._version = MULTIPLEXES if multiplexing else PLAIN
        self._work = work
        self._instance = instance
        self._idle_s = idle_s
        # One for the whole session: WebSockets come and go, its numbers and what is not acknowledged stay.
        self._conversation = Conversation(self._take, sends=OUTPUT)
        self._plugin: Plugin | None = None
        # The handshake waits in its own task: messages are taken one after the other, and this is one of them.
        self._answered: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._transmit: Transmit | None = None
        self._is_ending = False
        self._left_s = self._heard_s = self._loop.time()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.ensure_future(work) for work in (self._run(), self._look_at_clock(), self._look_at_conversation())
        ]
        # From the thread of its keeper, and maybe after the loop has ended.
        self._instance.exited.add_done_callback(lambda exited: _soon(self._loop, self._instance_ended))

    def attach(self, transmit: Transmit) -> None:
        """A client has come by another WebSocket."""
        self._transmit = transmit
        self.hear()
        self._conversation.attach(transmit)

    def detach(self, transmit: Transmit) -> None:
        """A WebSocket is closed; the one that has replaced it stays."""
        # The old connection's end may be noticed after the new one has begun.
        if self._transmit is transmit:
            self._transmit = None
            self._left_s = self._loop.time()
            self._conversation.detach()

    def hear(self) -> None:
        """The user has done something: he is not idle."""
        self._heard_s = self._loop.time()

    async def receive(self, data: bytes) -> None:
        """Take a message of the client."""
        await self._conversation.receive(data)

    async def _take(self, frame: Frame) -> None:
        self.hear()
        if frame.payload_type == PayloadType.HANDSHAKE_RESPONSE:
            if not self._answered.done():
                self._answered.set_result(frame)
        # Before the handshake is complete there is none: data that come so early are lost, as with AWS's agent.
        elif self._plugin is not None:
            await self._plugin.take(frame)

    async def end(self, reason: str) -> None:
        """End the session, and say so to the client; harmless when repeated."""
        if self._is_ending:
            return
        self._is_ending = True
        if self._plugin is not None:
            await self._plugin.close()
        if self._transmit is not None:
            # Outside of the sequence: nobody would acknowledge it any more.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._transmit(notice(CHANNEL_CLOSED, SessionId=self.session, Output=reason, SchemaVersion=1))
        self._conversation.end(ConnectionResetError("the session has ended"))
        # Last: whoever waits for it closes the connection.
        self.ended.set()
        current = asyncio.current_task()
        for task in self._tasks:
            # It may be the work's own task that ends the session, at its end.
            if task is not current:
                task.cancel()

    async def _run(self) -> None:
        reason = ""
        try:
            async with asyncio.timeout(ANSWER_S):
                client = await self._shake_hands()
            ends = Ends(
                instance=self._instance,
                send=self._conversation.send,
                multiplexes=self._version == MULTIPLEXES and client >= MUX_CLIENT,
            )
            # Before the client hears that all is agreed: what it sends then has somebody to take it.
            self._plugin = self._work.begin(ends)
            await self._conversation.send(PayloadType.HANDSHAKE_COMPLETE, handshake.complete(0.0))
            await self._plugin.run()
            await self._hand_over()
        except (OSError, ValueError) as error:
            reason = str(error)
        await self.end(reason)

    async def _hand_over(self) -> None:
        """Wait until the client has the last messages; not for one that is away for long."""
        while not await self._conversation.drain(LOOK_S) and self._conversation.error is None:
            if self._transmit is None and self._loop.time() - self._left_s > AWAY_S:
                return

    async def _shake_hands(self) -> tuple[int, ...]:
        """Return the client's version."""
        handshake_request = handshake.request(self._version, self._work.session_type, self._work.properties)
        await self._conversation.send(PayloadType.HANDSHAKE_REQUEST, handshake_request)
        return handshake.version_of(str((await self._answered).document().get("ClientVersion")))

    async def _look_at_clock(self) -> None:
        while (left_s := self._heard_s + self._idle_s - self._loop.time()) > 0:
            await asyncio.sleep(left_s)
        await self.end(f"Session: {self.session} timed out.")

    async def _look_at_conversation(self) -> None:
        await self._conversation.ended.wait()
        await self.end(str(self._conversation.error))

    def _instance_ended(self) -> None:
        self._tasks.append(asyncio.ensure_future(self.end("the instance has ended")))


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)

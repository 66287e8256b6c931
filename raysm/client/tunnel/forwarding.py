"""Connections to one port of one instance: all by one session where its agent can do that, else by a session each."""

import asyncio

from raysm.client.tunnel.channel import Channel
from raysm.client.tunnel.session import Document, Sessions
from raysm.contract.ssm.frames import PAYLOAD_BYTES, Frame, PayloadType
from raysm.contract.ssm.streams import ByteStream, Stream, Streams

__all__ = ["Forwarding"]


class Forwarding:
    """A port of an instance."""

    def __init__(self, sessions: Sessions, target: str, document: Document) -> None:
        """Open nothing yet.

        Args:
            sessions: Where sessions are to be had.
            target: The instance.
            document: Of port forwarding, with the port.
        """
        self._sessions = sessions
        self._target = target
        self._document = document
        # A browser opens six connections at once: only the first begins a session for all.
        self._lock = asyncio.Lock()
        self._first: _Session | None = None

    async def open(self) -> None:
        """Begin the first session.

        Raises:
            ServiceError: It is refused.
        """
        async with self._lock:
            self._first = self._first or await self._begin()

    async def connect(self) -> Stream:
        """Return one more connection.

        Raises:
            ServiceError: A session is refused.
            OSError: The session ended meanwhile.
        """
        async with self._lock:
            session, self._first = self._first, None
            # Idle for 20 minutes, or its agent gone: the tunnel stays, the next connection begins another.
            if session is None or session.is_over:
                session = await self._begin()
            # Else it is this connection's alone, and ends with it.
            if session.multiplexes:
                self._first = session
        return await session.connect()

    async def close(self) -> None:
        """End the session that all share, or that nobody has used yet."""
        if self._first is not None:
            session, self._first = self._first, None
            await session.close()

    async def _begin(self) -> "_Session":
        session = _Session(self._sessions)
        await session.open(self._target, self._document)
        return session


class _Session:
    """One session of port forwarding."""

    def __init__(self, sessions: Sessions) -> None:
        self._channel = Channel(sessions, self._deliver)
        self._streams = Streams(self._send, is_client=True)
        # Where the agent does not multiplex, the session is the connection: its end is the session's.
        self._plain = ByteStream(self._send_plain, self.close)
        self._watching: list[asyncio.Task[None]] = []

    @property
    def is_over(self) -> bool:
        return self._channel.is_over

    @property
    def multiplexes(self) -> bool:
        return self._channel.agreement.multiplexes

    async def open(self, target: str, document: Document) -> None:
        await self._channel.open(target, document)
        self._watching.append(asyncio.ensure_future(self._watch()))
        if self.multiplexes:
            # An agent ends a mux that is silent, though its WebSocket lives.
            self._watching.append(asyncio.ensure_future(self._keep_alive(self._channel.agreement.heartbeat_s)))

    async def connect(self) -> Stream:
        return await self._streams.open() if self.multiplexes else self._plain

    async def close(self) -> None:
        self._finish()
        for task in self._watching:
            task.cancel()
        await self._channel.close()

    async def _watch(self) -> None:
        await self._channel.ended.wait()
        self._finish()

    def _finish(self) -> None:
        self._streams.end()
        self._plain.finish()

    async def _keep_alive(self, pause_s: float) -> None:
        while not self.is_over:
            await asyncio.sleep(pause_s)
            await self._streams.keep_alive()

    async def _send(self, data: bytes) -> None:
        await self._channel.send(PayloadType.OUTPUT, data)

    async def _send_plain(self, data: bytes) -> None:
        # The mux cuts its frames itself; plain bytes are cut here.
        for start in range(0, len(data), PAYLOAD_BYTES):
            await self._send(data[start : start + PAYLOAD_BYTES])

    async def _deliver(self, frame: Frame) -> None:
        # A flag says that nobody listens at the port; of whose connection it does not say. That one is finished.
        if frame.payload_type != PayloadType.OUTPUT:
            return
        await (self._streams.feed if self.multiplexes else self._plain.feed)(frame.payload)

"""Connections between the two ends of a data channel, and an end as client and agent have it, without a network."""

import asyncio
from collections import deque

from raysm.contract.ssm.conversation import Conversation
from raysm.contract.ssm.frames import PayloadType

__all__ = ["End", "Wire"]


class Wire:
    """One direction of a connection: so many messages fit, and pass when they may; what is left at a cut is lost."""

    def __init__(self, room, *, flows):
        self.room, self.flows, self.credit = room, flows, 0
        self.messages, self.is_cut = deque(), False
        self._changed = asyncio.Event()

    def change(self):
        self._changed.set()
        self._changed = asyncio.Event()

    async def put(self, data):
        while len(self.messages) >= self.room and not self.is_cut:
            await self._changed.wait()
        if self.is_cut:
            raise ConnectionResetError("cut")
        self.messages.append(data)
        self.change()

    async def get(self):
        """Return the next message; None after the cut."""
        while not self.is_cut and not (self.messages and (self.flows or self.credit)):
            await self._changed.wait()
        if self.is_cut:
            return None
        self.credit -= not self.flows
        data = self.messages.popleft()
        self.change()
        return data

    def cut(self):
        self.is_cut = True
        self.change()


class End:
    """One end of a channel, as client and agent are: by one connection after the other."""

    def __init__(self, sends, window, most_held):
        self.got, self.sent = [], 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.conversation = Conversation(self._take, sends=sends, window=window, most_held=most_held)
        self.connections, self._to_send = asyncio.Queue(), asyncio.Queue()
        self._tasks = [asyncio.ensure_future(self._carry()), asyncio.ensure_future(self._send())]

    async def _take(self, frame):
        await self.reads.wait()
        self.got.append(int(frame.payload))

    async def _carry(self):
        while True:
            here, there = await self.connections.get()
            self.conversation.attach(there.put)
            while (data := await here.get()) is not None:
                await self.conversation.receive(data)
            self.conversation.detach()

    async def _send(self):
        while True:
            await self.conversation.send(PayloadType.OUTPUT, await self._to_send.get())

    def send(self, count):
        for number in range(self.sent, self.sent + count):
            self._to_send.put_nowait(str(number).encode())
        self.sent += count

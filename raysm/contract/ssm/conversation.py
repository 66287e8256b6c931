"""A data channel in asyncio: outlives the connections that carry it, one after the other.

What flows in are payloads to send and messages of whatever connection there is; what flows out are messages to that
connection, and the stream messages of the other end, each once and in order. Both ends are of this class.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from raysm.contract.ssm.frames import ACKNOWLEDGE, INPUT, OUTPUT, Frame, decode
from raysm.contract.ssm.sequence import WINDOW, Sequence

__all__ = ["Conversation", "Transmit"]

Transmit: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends one message by a connection; raises OSError where it is closed."""

MOST_HELD = 8000
"""Messages whose turn it is and that are not delivered; above, the connection is not read. Ends of ours never come so
far: their window is smaller."""
TICK_S = 0.1
"""How often to look for what is to be sent again, as both of AWS's ends do."""


class Conversation:
    """One end of a data channel.

    Attributes:
        error: Why nothing can be sent any more; None while it can.
        ended: Set when nothing can: whoever carries it need not do so any longer.
    """

    def __init__(
        self,
        deliver: Callable[[Frame], Awaitable[None]],
        *,
        sends: str,
        window: int = WINDOW,
        most_held: int = MOST_HELD,
    ) -> None:
        """Begin without a connection.

        Args:
            deliver: Is given each message of the other end, and awaited before the next one.
            sends: The type of the messages of this end.
            window: How far a message may be ahead of the oldest one that is not acknowledged.
            most_held: Messages that wait to be delivered, above which the connection is not read.
        """
        self._deliver = deliver
        # An end passes over what it sends itself: a proxy that echoed it would otherwise be answered for ever.
        self._receives = INPUT if sends == OUTPUT else OUTPUT
        self._sequence = Sequence(sends=sends, window=window)
        self._most_held = most_held
        self._transmit: Transmit | None = None
        self._answers: dict[int, bytes] = {}
        self._again: list[bytes] = []
        self._has_work = asyncio.Event()
        self._is_delivering = False
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.error: OSError | None = None
        self.ended = asyncio.Event()

    def attach(self, transmit: Transmit) -> None:
        """From now on ``transmit`` carries it; what may have been lost is sent again.

        Waits for nothing: whoever attaches is who reads the connection, and both ends send before they read.
        """
        self._transmit = transmit
        self._again = self._sequence.resume(_now_s())
        self._has_work.set()
        # Once, however many connections follow: the tasks belong to the conversation.
        if not self._tasks and self.error is None:
            self._tasks = [asyncio.ensure_future(self._work_off()), asyncio.ensure_future(self._deliver_all())]

    def detach(self) -> None:
        """Nothing carries it now: what is sent waits."""
        self._transmit = None

    async def send(self, payload_type: int, payload: bytes) -> None:
        """Send a payload; return when there is room for the next one.

        Raises:
            OSError: The conversation has ended.
        """
        # Without a connection, too: what is sent while there is none waits in the window, and then here.
        while not self._sequence.has_room and self.error is None:
            await self._change()
        if self.error is not None:
            raise self.error
        await self._pass_on(self._sequence.send(payload_type, payload, _now_s()))

    async def receive(self, data: bytes) -> None:
        """Take a message of the connection; what no one can read is passed over: it comes again.

        Never waits for whoever the message is for: behind it come the acknowledgements that the other direction waits
        for. Nor for room to answer: where both ends did, with the line full in both directions, neither would read.
        """
        try:
            frame = decode(data)
            if frame.type == ACKNOWLEDGE:
                self._sequence.acknowledged(frame, _now_s())
        except (ValueError, KeyError):
            return
        if frame.type == self._receives:
            self._answer(frame.sequence, self._sequence.receive(frame))
        elif frame.type != ACKNOWLEDGE:
            # What stands outside the streams, ``channel_closed``, has its turn at once.
            await self._deliver(frame)
        self._changed.set()
        # AWS's agent does not wait for acknowledgements: above so many it would forget what it has sent.
        while self._sequence.held > self._most_held and self.error is None:
            await self._change()

    def _answer(self, sequence: int, data: bytes | None) -> None:
        # One for each message, however often it comes: the other end may send faster than the line takes answers.
        if data is not None:
            self._answers[sequence] = data
            self._has_work.set()

    async def _deliver_all(self) -> None:
        try:
            while True:
                frame = self._sequence.take()
                self._is_delivering = frame is not None
                self._changed.set()
                if frame is None:
                    await self._change()
                    continue
                await self._deliver(frame)
                await self._pass_on(self._sequence.delivered(frame))
        # Whoever it was for cannot take it: nothing behind it would make sense.
        except (OSError, ValueError) as error:
            self.end(ConnectionAbortedError(str(error)))

    async def settle(self) -> None:
        """Wait until all has been delivered whose turn it is: the other end has gone, and nothing more comes."""
        while (self._sequence.held or self._is_delivering) and self.error is None:
            await self._change()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until the other end has all; return whether it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._sequence.is_acknowledged and self.error is None:
                    await self._change()
        return self._sequence.is_acknowledged

    def end(self, error: OSError) -> None:
        """Let nobody send any more; harmless when repeated."""
        self.error = self.error or error
        self.ended.set()
        self.detach()
        current = asyncio.current_task()
        for task in self._tasks:
            # What is delivered just now may be what ends it.
            if task is not current:
                task.cancel()
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _pass_on(self, data: bytes | None) -> None:
        if self._transmit is None or data is None:
            return
        # Lost with its connection: it is sent again by the next one.
        with contextlib.suppress(OSError):
            await self._transmit(data)

    async def _work_off(self) -> None:
        """Send what no one waits for: answers, and what was lost or is late."""
        while True:
            again, self._again = self._again, []
            answers, self._answers = self._answers, {}
            for data in (*answers.values(), *again, *self._late(), self._sequence.still_here(_now_s())):
                await self._pass_on(data)
            # A tick, and no timer for each message: there may be hundreds under way, most of them never due.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._has_work.wait()
            self._has_work.clear()

    def _late(self) -> list[bytes]:
        if self._transmit is None:
            return []
        try:
            return self._sequence.due(_now_s())
        except TimeoutError as error:
            self.end(error)
            return []


def _now_s() -> float:
    # The loop's own clock, which no one sets: that of the day jumps, by an hour where somebody corrects it.
    return asyncio.get_running_loop().time()

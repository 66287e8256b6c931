"""Everything that happens to an instance, in the order in which it does: one queue, one reader.

Callbacks of sockets, processes and signals put events in; the life cycle takes them out, one at a time, so that no two
of them are ever handled at once.
"""

import asyncio
import time

from raysm.bootstrap.lifecycle import Happening

__all__ = ["Inbox"]


class Inbox:
    """The queue; its clock is ``time.monotonic``."""

    def __init__(self) -> None:
        """Begin empty."""
        self._events: asyncio.Queue[Happening] = asyncio.Queue()

    def put(self, event: Happening) -> None:
        """Add what has happened; from the event loop's thread only."""
        # Never full: what cannot be put would be lost, and each event is a few hundred bytes.
        self._events.put_nowait(event)

    async def take(self, until_s: float | None) -> Happening | None:
        """Wait for what happens next; return None if that is nothing before ``until_s`` (None: wait for ever)."""
        # What is there already counts, also when the time has passed: wait_for with nothing left would not even look.
        if not self._events.empty():
            return self._events.get_nowait()
        if until_s is None:
            return await self._events.get()
        try:
            return await asyncio.wait_for(self._events.get(), max(0.0, until_s - time.monotonic()))
        except TimeoutError:
            return None

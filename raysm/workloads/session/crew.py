"""Which process does which call: a few take turns with short calls, and there are more where calls hold theirs.

What flows in are calls that want a process, and processes that are free again or lost; what flows out is whose turn it
is, and when another process is to be started. Calls take no CPU, so Ray itself would start one for each: a thousand
that do nothing waited for processes, a second of a core each (154 calls a second), where a handful does them by turns.
A fixed number would be no way out: calls may wait for one another, and each must then run. All of it lives in one
event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["Crew"]

P = TypeVar("P")

PATIENCE_S = 0.1
"""A process whose call takes longer is not waited for any more: much beside a short call, little beside a process's
start."""

IDLE_S = 30.0
"""After so long without a call a process ends that is one too many. Ray gives its own a second, and would start them
anew for each cell that a user sends after some thought."""


class Crew(Generic[P]):
    """The processes that do calls, and the calls that wait for one, in the order in which they came."""

    def __init__(
        self,
        width: int,
        start: Callable[[], Awaitable[P]],
        end: Callable[[P], None],
        *,
        patience_s: float = PATIENCE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """Begin with no process.

        Args:
            width: How many take turns, beside those that a long call holds.
            start: Starts a process.
            end: Ends one that is free.
            patience_s: A call that takes longer holds its process.
            idle_s: How long one too many may be free.
        """
        self._width, self._start, self._end = width, start, end
        self._patience_s, self._idle_s = patience_s, idle_s
        self._waiting: dict[str, asyncio.Future[P | None]] = {}
        # Since when each has had its call, the longest held first: a dict keeps the order of its keys.
        self._busy: dict[P, float] = {}
        self._free: dict[P, asyncio.TimerHandle | None] = {}
        self._starting: set[asyncio.Future[P]] = set()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """How many processes there are."""
        return len(self._busy) + len(self._free)

    def prepare(self) -> None:
        """Start a process, for the first call that comes."""
        # One, not the width: on a small head the second would take the core that the first call wants.
        self._start_one()

    async def enter(self, id: str) -> P | None:
        """Wait for a process for the call ``id``; return None where the call was turned away meanwhile.

        Raises:
            Exception: No process could be started.
        """
        turn: asyncio.Future[P | None] = asyncio.get_running_loop().create_future()
        self._waiting[id] = turn
        self._give()
        try:
            return await turn
        except asyncio.CancelledError:
            # Its turn may have come just before: nobody else would hand the process on.
            if turn.done() and not turn.cancelled() and turn.exception() is None and (process := turn.result()):
                self.leave(process)
            raise
        finally:
            self._waiting.pop(id, None)

    def leave(self, process: P) -> None:
        """A process has done its call."""
        del self._busy[process]
        self._add(process)

    def lose(self, process: P) -> None:
        """A process with a call is no more, or nobody knows what it does."""
        # Not replaced by itself: whether another one is wanted is seen by whoever waits.
        del self._busy[process]
        self._give()

    def turn_away(self, id: str) -> None:
        """The call ``id`` shall not wait any more; nothing where it does not."""
        turn = self._waiting.pop(id, None)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def close(self) -> None:
        """Start and end none any more."""
        for timer in [self._looking, *self._free.values()]:
            if timer is not None:
                timer.cancel()
        for start in self._starting:
            start.cancel()

    def _add(self, process: P) -> None:
        loop, is_spare = asyncio.get_running_loop(), len(self._free) >= self._width
        self._free[process] = loop.call_later(self._idle_s, self._retire, process) if is_spare else None
        self._give()

    def _retire(self, process: P) -> None:
        del self._free[process]
        self._end(process)

    def _give(self) -> None:
        while self._free and self._waiting:
            turn = self._waiting.pop(next(iter(self._waiting)))
            # Cancelled, and not yet gone from here.
            if turn.done():
                continue
            # The last that became free: what it needs is in the machine's caches still.
            process, timer = self._free.popitem()
            if timer is not None:
                timer.cancel()
            self._busy[process] = asyncio.get_running_loop().time()
            turn.set_result(process)
        self._grow()

    def _grow(self) -> None:
        """Start what is missing of the width; those that a long call holds do not count."""
        if not self._waiting:
            return
        now_s = asyncio.get_running_loop().time()
        turning = [since_s for since_s in self._busy.values() if now_s - since_s < self._patience_s]
        # Those that start count: a second passes until they are there, in which this is asked a hundred times.
        missing = self._width - len(turning) - len(self._starting)
        for _ in range(min(missing, len(self._waiting) - len(self._starting))):
            self._start_one()
        # When the next one counts as held: before, nothing changes but by ends, which come here by themselves.
        if turning and self._looking is None:
            delay_s = min(turning) + self._patience_s - now_s
            self._looking = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        self._looking = None
        self._grow()

    def _start_one(self) -> None:
        start: asyncio.Future[P] = asyncio.ensure_future(self._start())
        self._starting.add(start)
        start.add_done_callback(self._started)

    def _started(self, start: asyncio.Future[P]) -> None:
        self._starting.discard(start)
        if start.cancelled():
            return
        error = start.exception()
        if error is None:
            self._add(start.result())
            return
        # Whoever has waited longest is told: he would wait for ever. The next one is tried for anew.
        turn = self._waiting.pop(next(iter(self._waiting), ""), None)
        if turn is not None and not turn.done():
            turn.set_exception(error)
        self._grow()

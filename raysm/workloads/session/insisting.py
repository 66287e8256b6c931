"""What is to end a call, done again and again until it has: the first signal may strike code that catches it.

What flows in are calls that somebody interrupts, and a way to strike each; nothing flows out.
"""

import asyncio
import contextlib
from collections.abc import Callable

from raysm.workloads.session.calls import Call

__all__ = ["Insisting"]

SIGNAL_S = 0.5
"""Between two strikes: a second is what the end of a cell or a call may take."""


class Insisting:
    """The calls that are to end; in one event loop."""

    def __init__(self) -> None:
        """Begin with none."""
        # asyncio holds tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, call: Call, strike: Callable[[], None]) -> None:
        """Call ``strike`` now, and until the call has ended."""
        task = asyncio.create_task(self._insist(call, strike))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _insist(self, call: Call, strike: Callable[[], None]) -> None:
        # No end of its own: who strikes decides when to strike harder.
        while not call.done.is_set():
            strike()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(call.done.wait(), SIGNAL_S)

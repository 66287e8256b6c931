"""An event loop in a thread of its own: for heartbeats, which must not wait for a disk or for a log that nobody reads.

What flows in are coroutines and calls of the life cycle's thread, what flows out are their results, and calls back into
that thread's own loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

__all__ = ["LoopThread", "bound_to_this_loop"]

END_S = 2.0
"""Seconds that its tasks have to end; the thread dies with the process in any case."""

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """A running event loop, until it is closed."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, daemon=True, name=name)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` there; return or raise here what it does. Who cancels this cancels the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, function: Callable[P, None], *args: P.args, **named: P.kwargs) -> None:
        """Call ``function`` there, some time soon, and after what was asked for before."""

        def guarded() -> None:
            with contextlib.suppress(OSError):  # a connection that is lost is reported by itself
                function(*args, **named)

        self._loop.call_soon_threadsafe(guarded)

    def close(self) -> None:
        """End all that runs there, and the thread; harmless when repeated."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()


def bound_to_this_loop(function: Callable[P, None]) -> Callable[P, None]:
    """Return what calls ``function`` in the event loop that runs here, whatever thread calls it; in its order."""
    loop = asyncio.get_running_loop()

    def call(*args: P.args, **named: P.kwargs) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed: nobody wants to hear it any more
            loop.call_soon_threadsafe(lambda: function(*args, **named))

    return call

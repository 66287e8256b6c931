"""An event loop in a thread of its own, for connections that outlive the call that made them.

What flows in are coroutines of any thread, what flows out are their results.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Loop"]

T = TypeVar("T")

END_S = 5.0
"""Seconds that its tasks have to end; the thread dies with the process in any case."""


class Loop:
    """A running event loop, until it is closed."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        # A daemon: a program whose user has forgotten close() still ends.
        self._thread = threading.Thread(target=self._live, daemon=True, name=name)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Have ``work`` run there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``work`` there and wait for it; Ctrl-C ends both.

        Raises:
            TimeoutError: It takes longer than ``timeout_s``.
        """
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End all that runs there; harmless when repeated."""
        # A callback of the loop may be what closes it: a thread that joins itself would wait for ever.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # What asks the service runs in a thread of it, which would otherwise outlive the loop.
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

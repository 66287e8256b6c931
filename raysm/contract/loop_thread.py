"""An event loop in a thread of its own: for connections that outlive the call that made them, or must not wait for it.

Any thread may start coroutines and calls there, and gets their results.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

END_S = 2.0
"""Seconds that its tasks have to end; the thread dies with the process in any case, and instances end within this time
of the job's end."""

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """A running event loop, until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a program whose user has forgotten close() still ends.
        self._thread = threading.Thread(target=self._live, daemon=True, name=name)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """True if the thread has ended."""
        return not self._thread.is_alive()

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

    async def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` there for a coroutine of another loop, which goes on meanwhile; who cancels this, cancels it."""
        return await asyncio.wrap_future(self.start(work))

    def call(self, function: Callable[P, None], *args: P.args, **named: P.kwargs) -> None:
        """Call ``function`` there, some time soon, and after what was asked for before."""

        def guarded() -> None:
            with contextlib.suppress(OSError):  # a connection that is lost is reported by itself
                function(*args, **named)

        self._loop.call_soon_threadsafe(guarded)

    def close(self) -> None:
        """End all that runs there, and the thread; harmless when repeated."""
        # From within it could only wait for itself.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # Cancelled and waited for: a task that is only dropped complains on stderr when it is collected.
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def bound_to_this_loop(function: Callable[P, None]) -> Callable[P, None]:
    """Return what calls ``function`` in the event loop that runs here, whatever thread calls it; in its order."""
    loop = asyncio.get_running_loop()

    def call(*args: P.args, **named: P.kwargs) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: function(*args, **named))

    return call

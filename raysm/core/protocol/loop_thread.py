"""An event loop in a thread of its own, for connections that outlive the call that opened them.

Any thread may start coroutines in the loop and get their results.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

END_S = 2.0
"""Seconds that the loop's tasks have to end. Instances must end this soon after the job; the thread
is a daemon and ends with the process in any case."""
P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a program without a call of close() still ends.
        self._thread = threading.Thread(target=self._run_loop, daemon=True, name=name)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return not self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run ``work`` in the loop and wait for it; Ctrl-C and the timeout end both."""
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    async def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the loop without blocking the caller's own loop.

        Cancelling this cancels ``work``.
        """
        return await asyncio.wrap_future(self.start(work))

    def call(self, function: Callable[P, None], *args: P.args, **named: P.kwargs) -> None:
        """Call ``function`` in the loop soon, after all earlier calls; do not wait for it."""

        def guarded() -> None:
            with contextlib.suppress(OSError):  # a lost connection is reported by its reader
                function(*args, **named)

        self._loop.call_soon_threadsafe(guarded)

    def close(self) -> None:
        # The thread cannot wait for itself.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # A task that is dropped without being awaited warns on stderr when it is garbage collected.
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def bound_to_this_loop(function: Callable[P, None]) -> Callable[P, None]:
    """Return a function that any thread may call, and that calls ``function`` in this event loop.

    The calls keep their order.
    """
    loop = asyncio.get_running_loop()

    def call(*args: P.args, **named: P.kwargs) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: function(*args, **named))

    return call

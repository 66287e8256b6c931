"""One thread that calls functions at given times.

Tens of thousands of simulated jobs wait here; a thread for each would be too much.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Timers"]

LOG = logging.getLogger(__name__)


class Timers:
    """A queue of moments; every method may be called from any thread."""

    def __init__(self) -> None:
        """Begin with nothing; the thread begins with the first moment."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have something be done in so many seconds; what fails is told in the log, and keeps nobody else waiting."""
        with self._changed:
            # By a number too: two moments may be equal, and functions have no order.
            heapq.heappush(self._queue, (time.monotonic() + seconds, next(self._numbers), do))
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Do nothing more; returns when what is being done is done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (do := self._next()) is not None:
            try:
                do()
            except Exception:
                LOG.exception("what was to be done later failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._is_closed:
                left_s = self._queue[0][0] - time.monotonic() if self._queue else None
                if left_s is not None and left_s <= 0:
                    return heapq.heappop(self._queue)[2]
                self._changed.wait(left_s)
        return None

"""Log lines on their way to CloudWatch: they flow in as they are written, and out some seconds later."""

import heapq
import threading
import time
from random import Random

from raysm.local.server.log_files import LogWriter

__all__ = ["LateLines"]


class LateLines:
    """Hands lines over to a writer late, those of each instance by a time of its own; may be called from any thread."""

    def __init__(self, writer: LogWriter, late_s: float, chance: Random) -> None:
        """Be late by at most ``late_s``; closes ``writer`` once it has all lines."""
        self._writer = writer
        self._late_s = late_s
        self._chance = chance
        self._delays_s: dict[str, float] = {}
        self._waiting: list[tuple[float, int, float, str, str]] = []
        """When each is due, its number, when it was written, by whom, and what."""
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()
        # No daemon: a server that ends has the lines of its last jobs written, as CloudWatch would.
        threading.Thread(target=self._run, name="late lines").start()

    def line(self, host: str, message: str) -> None:
        """Take one line, of now."""
        now_s = time.time()
        with self._changed:
            if host not in self._delays_s:
                self._delays_s[host] = self._chance.uniform(0, self._late_s)
            # Lines that are due at the same moment come in the order in which they were written.
            self._count += 1
            heapq.heappush(self._waiting, (now_s + self._delays_s[host], self._count, now_s, host, message))
            self._changed.notify()

    def close(self) -> None:
        """Take no more; what has been taken still comes. Harmless when repeated."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and self._closed:
                    break
                left_s = self._waiting[0][0] - time.time() if self._waiting else None
                if left_s is None or left_s > 0:
                    self._changed.wait(left_s)
                    continue
                _, _, at_s, host, message = heapq.heappop(self._waiting)
            self._writer.line(host, message, at_s)
        self._writer.close()

"""A server's clock and its timers, moved by the test: what takes hours takes no time."""

import heapq
import itertools


class HandClock:
    """Takes the place of a ``Clock`` and of ``Timers`` both."""

    speed = 1.0

    def __init__(self, now=1_800_000_000.0):
        self.seconds = now
        self._queue = []
        self._numbers = itertools.count()

    def now(self):
        return self.seconds

    def takes_s(self, seconds):
        return seconds

    def after(self, seconds, do):
        heapq.heappush(self._queue, (self.seconds + seconds, next(self._numbers), do))

    def pass_s(self, seconds):
        """Let time pass, and have happen what is to happen meanwhile."""
        end = self.seconds + seconds
        while self._queue and self._queue[0][0] <= end:
            self.seconds, _, do = heapq.heappop(self._queue)
            do()
        self.seconds = end

    def close(self):
        """Nothing has to end."""

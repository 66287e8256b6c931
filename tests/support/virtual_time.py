"""An event loop whose time is its own: it passes at once when nothing is left to do, and stands still meanwhile."""

import asyncio
import selectors

__all__ = ["VirtualTimeLoop"]


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing: the loop's clock jumps to what it waits for."""

    now_s = 0.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready:
            # Without a timer and without a descriptor nothing would ever happen again: that is a deadlock, and said.
            assert timeout is not None, "everybody waits for somebody else"
            self.now_s += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop for tests of what takes minutes; it has no threads."""

    def __init__(self):
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self):
        return self._skipping.now_s

    def close(self):
        """End what still runs, too: a test that fails leaves it behind."""
        if self.is_closed():
            return
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        super().close()

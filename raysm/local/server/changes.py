"""That something of a job has changed: lines and statuses flow in, and out flows word of them to whoever waits."""

import threading

__all__ = ["Changes"]


class Changes:
    """Counts what changes; may be used from any thread."""

    def __init__(self) -> None:
        """Begin with none."""
        self._count = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """Something has changed."""
        # A line takes a microsecond more by it: nothing of the job waits for whoever follows it.
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout_s: float) -> int:
        """Wait until the count is another one than ``seen``, at most so long; return it."""
        with self._changed:
            # Another one, not a higher one: who followed the job at a server that was killed has that one's count.
            self._changed.wait_for(lambda: self._count != seen, timeout_s)
            return self._count

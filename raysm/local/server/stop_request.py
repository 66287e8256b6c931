"""A request to stop that a signal handler may make.

An event is no substitute: the handler runs in the thread that waits for the event, and waits for
ever if that thread holds the event's lock at that moment.
"""

import queue


class StopRequest:
    def __init__(self) -> None:
        # Its methods are reentrant.
        self._requests: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        self._requests.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the stop was requested before the timeout; one request ends one wait."""
        try:
            self._requests.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True

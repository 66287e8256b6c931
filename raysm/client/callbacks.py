"""What is called once a job has ended: a thread of its own waits for the end, however often the service is away.

What flows in are functions without arguments, and how to wait; what flows out are their calls.
"""

import logging
import threading
import time
from collections.abc import Callable

from raysm.errors import JobNotFound, ServiceError

__all__ = ["Callbacks"]

_log = logging.getLogger("raysm")


class Callbacks:
    """The callbacks of one job; may be added from any thread."""

    def __init__(self, job: str, *, wait: Callable[[], object], pause_s: float) -> None:
        """Have none yet, and no thread.

        Args:
            job: Its name, for messages.
            wait: Returns when the job has ended; raises a ServiceError where that cannot be told.
            pause_s: Seconds between two tries to wait.
        """
        self._job = job
        self._wait = wait
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []
        self._watcher: threading.Thread | None = None

    def add(self, callback: Callable[[], object]) -> None:
        """Call it when the job has ended."""
        with self._lock:
            self._waiting.append(callback)
            if self._watcher is None:
                # A daemon: a program that is through must not be held by a job that goes on for days.
                self._watcher = threading.Thread(target=self._watch, name=f"raysm watches {self._job}", daemon=True)
                self._watcher.start()

    def call(self, callback: Callable[[], object]) -> None:
        """Call it now; what it raises is logged and hinders no other."""
        try:
            callback()
        except Exception:
            _log.exception("a callback of the job %s raised", self._job)

    def _watch(self) -> None:
        while True:
            try:
                self._wait()
                break
            except JobNotFound as error:  # it was deleted: nothing more will ever be heard of it
                _log.warning("the job %s is gone: %s", self._job, error)
                break
            except ServiceError as error:  # credentials that have expired are renewed
                _log.warning("the job %s cannot be watched just now: %s", self._job, error)
                time.sleep(self._pause_s)
        with self._lock:
            callbacks, self._waiting, self._watcher = self._waiting, [], None
        # Without the lock, which is not reentrant: a callback may add another one.
        for callback in callbacks:
            self.call(callback)

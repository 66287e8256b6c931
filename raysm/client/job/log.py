"""Parts of a job's handle: its log, events, progress and metrics, its views, and callbacks at its end."""

import functools
import itertools
import logging
import pkgutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from raysm.client.job.chain import Chain
from raysm.client.service import Service
from raysm.errors import InvalidRequest, JobNotFound, ServiceError

if TYPE_CHECKING:
    from raysm.client.logs.metrics import FoundByService, Metrics
    from raysm.client.logs.stream import EventLog, LogLine
    from raysm.contract.events import Event, Progress

__all__ = ["Callbacks", "JobLog", "JobViews"]

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


class JobLog:
    """What is read of a job's log, mixed into it."""

    chain: Chain
    service: Service

    def lines(
        self, *, follow: bool = False, instance: str | None = None, tail: int | None = None
    ) -> "Iterator[LogLine]":
        """Yield the log lines of all instances, or of one, by their times; a job's before those of its follow-up.

        Args:
            follow: Go on until the job has ended; its follow-up jobs are sent meanwhile.
            instance: ``algo-2``.
            tail: Of the lines that are there already, only so many of the last ones that people read; None is all.

        Raises:
            InvalidRequest: The job has no such instance, or ``tail`` is below 0.
        """
        from raysm.client.logs.stream import JobStream, last_lines

        if tail is not None and tail < 0:
            raise InvalidRequest(f"tail must be at least 0, got {tail}")

        # Only who follows sends a follow-up job: a look at the log must begin none.
        stream = JobStream(self.chain, instance=instance, send=follow)
        later = stream.follow() if follow else stream.new_lines()
        return later if tail is None else itertools.chain(last_lines(stream.new_lines(), tail), later if follow else ())

    def logs(
        self,
        *,
        follow: bool = False,
        instance: str | None = None,
        metrics: bool = False,
        tail: int | None = None,
        to: TextIO | None = None,
    ) -> None:
        """Print what ``lines`` yields, each with its instance; raysm's own events as words.

        Args:
            follow: Go on until the job has ended. Ctrl-C ends the following, not the job.
            instance: ``algo-2``; None is all.
            metrics: Print the latest values too, a line every few seconds.
            tail: As ``lines`` has it.
            to: A text stream; None is stdout.

        Raises:
            InvalidRequest: As ``lines``.
        """
        from raysm.client.logs.rendering import Rendering
        from raysm.client.logs.stream import interrupted

        out = sys.stdout if to is None else to
        try:
            Rendering(metrics=metrics).write(self.lines(follow=follow, instance=instance, tail=tail), out)
        except KeyboardInterrupt:
            # Raised anew, so that its traceback shows the user's line instead of raysm's internals.
            raise interrupted(self.chain.name) from None

    def events(self, *, follow: bool = False) -> "Iterator[Event]":
        """Yield what the job says of itself: states, progress, metrics."""
        from raysm.contract.events import parse

        for line in self.lines(follow=follow):
            event = parse(line.text)
            if event is not None:
                yield event

    def progress(self) -> "dict[str, Progress]":
        """Return how far each phase is, by its name, in the order in which they began."""
        return self._event_log.progress()

    def metrics(self, *names: str) -> "Metrics":
        """Return the values of the metrics by time: the job's own, and those that the service found in its log.

        Args:
            names: ``"loss"``, or patterns, ``"val/*"``; none is all.
        """
        from raysm.client.logs.metrics import Metrics

        values = [*self._event_log.metrics(), *self._found_by_service.of(self.chain.descriptions())]
        # By time: CloudWatch has its values minutes late, and they belong among the job's own.
        return Metrics(sorted(values, key=lambda metric: metric.time_s)).named(*names)

    @functools.cached_property
    def _event_log(self) -> "EventLog":
        """One for the handle's life: each look reads only the lines that are new."""
        from raysm.client.logs.stream import EventLog, JobStream

        return EventLog(JobStream(self.chain))

    @functools.cached_property
    def _found_by_service(self) -> "FoundByService":
        """One for the handle's life, too."""
        from raysm.client.logs.metrics import FoundByService

        return FoundByService(self.service)


class JobViews:
    """The views of a job, mixed into it."""

    def dashboard(self, *, timeout: float | None = None) -> Any:
        """Return Ray's dashboard of the job at an address of this machine; a notebook shows it in a frame.

        ``.url`` is its address, ``.close()`` ends it, and so does the end of a ``with`` block or of this process. A job
        that has none yet is waited for.

        Args:
            timeout: Seconds to wait for a job that has none yet; None is without end.

        Raises:
            InvalidRequest: The job has ended.
            NotDone: A TimeoutError: there is none within ``timeout``.
            MissingDependency: aiohttp is not installed: the extra ``interactive``.
        """
        return pkgutil.resolve_name("raysm.views.dashboard.dashboard:open_dashboard")(self, timeout=timeout)

    def plot(self, *names: str, log: bool = False, size: tuple[int, int] = (640, 260)) -> Any:
        """Return a chart of metrics, which a notebook shows; ``.save("loss.png")`` writes it.

        Args:
            names: ``"loss"``, or patterns, ``"val/*"``; none is all of the job's own.
            log: Whether the y axis is logarithmic.
            size: Width and height in pixels.

        Raises:
            InvalidRequest: There are metrics, but none of such a name.
        """
        return pkgutil.resolve_name("raysm.views.plots:plot_jobs")([self], *names, log=log, size=size)

    def watch(self) -> Any:
        """Show a live card of the job below the cell of a notebook, until it has ended; later cells run meanwhile.

        Returns:
            A handle: ``.stop()`` draws it no more, ``.wait()`` waits for the job's last card.

        Raises:
            InvalidRequest: This is no notebook.
        """
        return pkgutil.resolve_name("raysm.views.card.watch:watch")(self)

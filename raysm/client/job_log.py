"""What a job says, by methods of the job itself: its lines, its events, its progress and its metrics.

Whoever only sends a job reads nothing of it: what reads a log is imported when it is asked for.
"""

import functools
import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from raysm.client.chain import Chain
from raysm.client.printable import printable
from raysm.client.service import Service
from raysm.errors import InvalidRequest

if TYPE_CHECKING:
    from raysm.client.follow import EventLog
    from raysm.client.logs import LogLine
    from raysm.client.metrics import FoundByService, Metrics
    from raysm.contract.events import Event, Progress

__all__ = ["JobLog"]


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
        from raysm.client.follow import JobStream, last_lines

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
        from raysm.client.follow import interrupted
        from raysm.client.rendering import Rendering

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

    @printable
    def progress(self) -> "dict[str, Progress]":
        """Return how far each phase is, by its name, in the order in which they began."""
        return self._event_log.progress()

    @printable
    def metrics(self, *names: str) -> "Metrics":
        """Return the values of the metrics by time: the job's own, and those that the service found in its log.

        Args:
            names: ``"loss"``, or patterns, ``"val/*"``; none is all.
        """
        from raysm.client.metrics import Metrics

        values = [*self._event_log.metrics(), *self._found_by_service.of(self.chain.descriptions())]
        # By time: CloudWatch has its values minutes late, and they belong among the job's own.
        return Metrics(sorted(values, key=lambda metric: metric.time_s)).named(*names)

    @functools.cached_property
    def _event_log(self) -> "EventLog":
        """One for the handle's life: each look reads only the lines that are new."""
        from raysm.client.follow import EventLog, JobStream

        return EventLog(JobStream(self.chain))

    @functools.cached_property
    def _found_by_service(self) -> "FoundByService":
        """One for the handle's life, too."""
        from raysm.client.metrics import FoundByService

        return FoundByService(self.service)

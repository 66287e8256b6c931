"""The cursor over what a job says: each look costs what is new, and goes on from the first job to its follow-ups.

What flows in is a Chain, what flows out are log lines, each once, and what raysm's own events among them add up to.
Nothing here waits but ``follow``: a view looks as often as it likes.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from raysm.client.chain import Chain, Patience
from raysm.client.deadline import deadline
from raysm.client.logs import LogLine, LogReader
from raysm.contract.events import Metric, Progress, parse
from raysm.errors import InvalidRequest, NotDone, ServiceError

__all__ = ["EventLog", "JobStream", "interrupted", "last_lines"]

FOLLOW_S = 5.0
"""Seconds between two looks at a log, at most: whoever follows it is looking at it."""

MOST_LISTED = 8
"""So many instances are listed by name; of more, the first and the last."""


class JobStream:
    """Yields the lines of a job and of its follow-ups, each once, from the first job's first line on.

    Attributes:
        is_over: Whether the job has ended, no follow-up goes on with it, and all its lines have been yielded.
    """

    def __init__(self, chain: Chain, *, instance: str | None = None, send: bool = False) -> None:
        """Stand before the first line.

        Args:
            chain: The jobs.
            instance: Read of this one alone; None is all.
            send: Send a follow-up job where a look finds that one is due.

        Raises:
            InvalidRequest: The job has no such instance.
        """
        if instance is not None:
            _check_instance(chain, instance)
        self.is_over = False
        self._chain, self._instance, self._send = chain, instance, send
        self._logs: list[_Log] = []

    def new_lines(self, *, whole: bool = True) -> Iterator[LogLine]:
        """Look once, and yield what has come since the last look, job by job, of each by time; take all of it.

        Memory holds one page of each instance's log.

        Args:
            whole: As ``LogReader.new_lines`` has it; of a job that has ended all is read.

        Raises:
            ServiceError: The service does not answer; the next look goes on where this one ended.
        """
        if self.is_over:
            return
        chain = self._chain
        ended = chain.ended(send=self._send)  # asked before reading, so that what was written before the end is read
        for name in chain.names[len(self._logs) :]:
            self._logs.append(_Log(LogReader(chain.service, chain.api, name, self._instance)))
        last = self._logs[-1]
        for log in self._logs:
            if log is not last:
                # It has ended, since another one goes on with it; its last lines may still be under way.
                yield from log.new_lines(late_s=chain.service.polling.late_s)
            else:
                yield from log.new_lines(late_s=chain.late_s() if ended else None, whole=whole)
        self.is_over = ended and all(log.is_over for log in self._logs)

    def follow(self, timeout: float | None = None) -> Iterator[LogLine]:
        """Yield the lines as they come, until the job has ended; a service that is away for a while is borne.

        Args:
            timeout: Seconds; None is without end.

        Raises:
            InvalidRequest: ``timeout`` is no number of seconds.
            NotDone: A TimeoutError: the job has not ended within ``timeout``.
            ServiceError: The service refuses to tell, has been away for minutes, or was told to end.
        """
        try:
            with self._chain.service.followed():
                yield from self._follow(timeout)
        except KeyboardInterrupt:
            raise interrupted(self._chain.name) from None

    def _follow(self, timeout: float | None) -> Iterator[LogLine]:
        deadline_s = deadline(timeout)
        patience, pauses = Patience(self._chain.service, self._chain.name), self._chain.service.polling.pauses()
        changes = 0
        while True:
            came = False
            try:
                for line in self.new_lines(whole=False):
                    came = True
                    yield line
                patience.heard()
            except ServiceError as error:
                # Lines came before it failed: the service was there until just now.
                if came:
                    patience.heard()
                patience.bear(error)
            if self.is_over:
                return
            # A log that has just grown is looked at often again.
            if came:
                pauses = self._chain.service.polling.pauses()
            streams = sum(log.streams for log in self._logs)
            pause_s = self._chain.service.polling.between_looks(min(next(pauses), FOLLOW_S), streams)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise NotDone(f"the job {self._chain.name} has not ended within {timeout:g} s; it goes on")
            changes = self._chain.service.wait_for_change(self._chain.name, changes, pause_s, left_s)


class EventLog:
    """What a job's progress and metrics add up to so far; may be used from any thread."""

    def __init__(self, stream: JobStream) -> None:
        """Read ``stream``, which nobody else reads."""
        self._stream = stream
        # The stream is a cursor: of two that look at once, each would get some of the lines.
        self._lock = threading.Lock()
        self._progress: dict[str, Progress] = {}
        self._metrics: list[Metric] = []

    def progress(self) -> dict[str, Progress]:
        """Look once; return how far each phase is, in the order in which they began."""
        with self._lock:
            self._look()
            return dict(self._progress)

    def metrics(self) -> list[Metric]:
        """Look once; return the values of all metrics, in the order in which they came."""
        with self._lock:
            self._look()
            return list(self._metrics)

    def _look(self) -> None:
        for line in self._stream.new_lines():
            match parse(line.text):
                case Progress() as progress:
                    self._progress[progress.phase] = progress
                case Metric() as metric:
                    self._metrics.append(metric)


class _Log:
    """The log of one job of the chain: it is over once its last lines must have reached the log service."""

    def __init__(self, reader: LogReader) -> None:
        self.is_over = False
        self._reader = reader
        self._over_s: float | None = None

    @property
    def streams(self) -> int:
        """How many calls a look takes."""
        return 0 if self.is_over else self._reader.streams

    def new_lines(self, late_s: float | None, *, whole: bool = True) -> Iterator[LogLine]:
        """Yield what has come; ``late_s`` is how late lines may still be, in seconds, None while the job runs."""
        if self.is_over:
            return
        came = False
        for line in self._reader.new_lines(whole=whole or late_s is not None):
            came = True
            yield line
        if late_s is None:
            return
        if self._over_s is None:
            self._over_s = time.monotonic() + late_s
        # Where lines still come, more of them may be under way.
        self.is_over = not came and time.monotonic() >= self._over_s


def last_lines(lines: Iterable[LogLine], count: int) -> Iterator[LogLine]:
    """Yield the last ``count`` of the lines that people read; events of progress and metrics do not count."""
    read = (line for line in lines if not isinstance(parse(line.text), Progress | Metric))
    return iter(deque(read, maxlen=count))


def interrupted(name: str) -> KeyboardInterrupt:
    """Return what Ctrl-C raises while a program waits for a job: it names the job and says how to stop it."""
    return KeyboardInterrupt(f"the job {name} goes on; raysm.attach({name!r}).stop() stops it")


def _check_instance(chain: Chain, instance: str) -> None:
    count = sum(number for _, number in chain.known().instances)
    names = [f"algo-{number}" for number in range(1, count + 1)]
    if not names or instance in names:  # what the service does not tell cannot be refused
        return
    shown = ", ".join(names) if count <= MOST_LISTED else f"{names[0]} to {names[-1]}"
    raise InvalidRequest(f"there is no instance {instance!r}: {chain.name} has {shown}")

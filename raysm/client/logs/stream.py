"""The log of a job and its follow-ups: each look costs what is new.

CloudWatch Logs, and the embedded server, have one stream for each instance.
"""

import heapq
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from raysm.client.job.chain import Chain, Patience
from raysm.client.service import Service
from raysm.client.units import deadline
from raysm.contract.events import Metric, Progress, parse
from raysm.contract.job_api import JobApi
from raysm.errors import InvalidRequest, NotDone, ServiceError

__all__ = [
    "EventLog",
    "JobStream",
    "LogLine",
    "LogReader",
    "interrupted",
    "last_lines",
]


MUCH = 1_000
"""Events of a page behind which more are likely; a page has at most 10,000, or 1 MB."""

STREAM = re.compile(r"(algo-\d+)-\d+")
"""What follows the job's name in that of an instance's stream."""


@dataclass(frozen=True, order=True, slots=True)
class LogLine:
    """One line that an instance wrote."""

    time_s: float
    """Seconds since the epoch, as the service took it."""
    host: str
    """The instance, ``algo-1``."""
    text: str
    """Without its newline."""


class LogReader:
    """Reads all that has come since the last time, of one job; remembers where it was in every stream."""

    def __init__(self, service: Service, api: JobApi, job: str, instance: str | None = None) -> None:
        """Read of ``instance`` alone, or of all where it is None."""
        self._service = service
        self._group = api.log_group
        self._job = job
        self._instance = instance
        self._tokens: dict[str, str | None] = {}
        self._taken: dict[str, int] = {}

    @property
    def streams(self) -> int:
        """How many streams there are, each of which takes a call of its own."""
        return len(self._tokens)

    def new_lines(self, *, whole: bool = True) -> Iterator[LogLine]:
        """Yield what has come since the last call, merged by time; memory holds one page of each stream.

        Args:
            whole: Read each stream until the service says that it has no more, which takes a call more; else what one
                page brings, and all of it if that is much: for callers that look again soon.
        """
        # At each look: an instance has a stream only once it has written something.
        self._find_streams()
        lines = (self._read(stream, whole) for stream in sorted(self._tokens))
        yield from heapq.merge(*lines, key=lambda line: line.time_s)

    def _find_streams(self) -> None:
        pages = self._service.pages(
            "logs",
            "describe_log_streams",
            token="nextToken",
            logGroupName=self._group,
            logStreamNamePrefix=f"{self._job}/",
        )
        try:
            for stream in (stream for page in pages for stream in page.get("logStreams", ())):
                name = stream["logStreamName"]
                host = self._host(name)
                if host is not None and self._instance in (None, host):
                    # A known stream keeps its position.
                    self._tokens.setdefault(name, None)
        except ServiceError as error:
            if error.code != "ResourceNotFoundException":  # the first job of an account makes the group
                raise

    def _read(self, stream: str, whole: bool) -> Iterator[LogLine]:
        host = self._host(stream) or ""
        while True:
            token = self._tokens[stream]
            page = self._page(stream, token)
            # A page that a failure of another stream cut off is read again, and only its rest is yielded.
            first = self._taken.get(stream, 0)
            events = page.get("events", ())
            for index, event in enumerate(events[first:], first + 1):
                yield LogLine(event["timestamp"] / 1000, host, event["message"].rstrip("\r\n"))
                self._taken[stream] = index
            following = page.get("nextForwardToken")
            self._tokens[stream], self._taken[stream] = following or token, 0
            if not following or following == token or not (whole or len(events) >= MUCH):
                return

    def _page(self, stream: str, token: str | None) -> dict[str, Any]:
        place = {"nextToken": token} if token else {}
        # Without startFromHead, the first page would be the last one.
        answer = self._service.call(
            "logs", "get_log_events", logGroupName=self._group, logStreamName=stream, startFromHead=True, **place
        )
        return dict(answer)

    def _host(self, stream: str) -> str | None:
        """Return the instance that writes ``stream``; None where none does."""
        form = STREAM.fullmatch(stream.removeprefix(f"{self._job}/"))
        return None if form is None else form[1]


FOLLOW_S = 5.0
"""Seconds between two looks at a log, at most: a follower is looking at it."""

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
        """Read ``stream``, which has no other reader."""
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

"""The log of a job and its follow-ups, as a cursor: each look reads only what is new.

CloudWatch Logs, and the embedded server, have one stream for each instance.
"""

import heapq
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raysm.core.client.job.chain import Chain, TransientErrors
from raysm.core.client.service import Service
from raysm.core.client.units import deadline
from raysm.core.protocol.events import (
    Digest,
    Event,
    Metric,
    Progress,
    SessionCall,
    State,
    Trial,
    parse,
)
from raysm.core.protocol.job_api import JobApi
from raysm.core.protocol.metric_patterns import patterns_of
from raysm.errors import InvalidRequest, NotDone, ServiceError

FULL_PAGE = 1_000
"""Events of a page after which more are likely; a page has at most 10,000, or 1 MB."""

STREAM = re.compile(r"(algo-\d+)-\d+")
FOLLOW_S = 5.0


@dataclass(frozen=True, order=True, slots=True)
class LogLine:
    time_s: float
    host: str
    text: str


class LogReader:
    """A cursor over the log of one job, or of one of its instances.

    ``is_over`` is True once the job has ended and its last lines have had time to arrive.
    """

    def __init__(
        self, service: Service, api: JobApi, job: str, instance: str | None = None
    ) -> None:
        self.is_over = False
        self._service = service
        self._group = api.log_group
        self._job = job
        self._instance = instance
        self._hosts: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        self._complete_at_s: float | None = None

    @property
    def streams(self) -> int:
        return 0 if self.is_over else len(self._hosts)

    def new_lines(self, *, whole: bool = True, late_s: float | None = None) -> Iterator[LogLine]:
        """Yield the lines since the last call, merged by time.

        Memory holds one page of each stream.

        With ``whole``, each stream is read to its end, which takes an extra call. Without, callers
        that look again soon read one page of a stream, and more only after a full page. ``late_s``
        are the seconds for which lines of a job that has ended may still arrive; None while it
        runs.
        """
        if self.is_over:
            return
        # Listed at each look, because an instance has a stream only once it has written something.
        streams = {"logGroupName": self._group, "logStreamNamePrefix": f"{self._job}/"}
        pages = self._service.pages("logs", "describe_log_streams", token="nextToken", **streams)
        try:
            for stream in (stream for page in pages for stream in page.get("logStreams", ())):
                name = stream["logStreamName"]
                form = STREAM.fullmatch(name.removeprefix(f"{self._job}/"))
                if form is not None and self._instance in (None, form[1]):
                    self._hosts[name] = form[1]
        except ServiceError as error:
            # The first job of an account creates the group.
            if error.code != "ResourceNotFoundException":
                raise
        came = False
        whole = whole or late_s is not None
        for line in heapq.merge(
            *(self._read(stream, whole) for stream in sorted(self._hosts)),
            key=lambda line: line.time_s,
        ):
            came = True
            yield line
        if late_s is not None:
            if self._complete_at_s is None:
                self._complete_at_s = time.monotonic() + late_s
            # If lines came just now, more of them may arrive.
            self.is_over = not came and time.monotonic() >= self._complete_at_s

    def _read(self, stream: str, whole: bool) -> Iterator[LogLine]:
        while True:
            token = self._tokens.get(stream)
            query = {"logGroupName": self._group, "logStreamName": stream} | (
                {"nextToken": token} if token else {}
            )
            # Without startFromHead, the first page would be the last one.
            page = self._service.call("logs", "get_log_events", startFromHead=True, **query)
            # If a failure of another stream interrupted this page, it is read again, and only its
            # rest is yielded.
            first = self._taken.get(stream, 0)
            events = page.get("events", ())
            for index, event in enumerate(events[first:], first + 1):
                yield LogLine(
                    event["timestamp"] / 1000, self._hosts[stream], event["message"].rstrip("\r\n")
                )
                self._taken[stream] = index
            following = page.get("nextForwardToken")
            self._taken[stream] = 0
            if following:
                self._tokens[stream] = following
            if not following or following == token or not (whole or len(events) >= FULL_PAGE):
                return


class JobStream:
    """Yields each line of a job and of its follow-ups once, from the first job's first on.

    Once the job has ended without a follow-up, and all its lines have been yielded, ``is_over`` is
    True.
    """

    def __init__(self, chain: Chain, *, instance: str | None = None, send: bool = False) -> None:
        """Begin before the first line; ``send`` a follow-up job if a look finds that one is due."""
        if instance is not None:
            count = sum(number for _, number in chain.known().instances)
            names = [f"algo-{number}" for number in range(1, count + 1)]
            if names and instance not in names:
                raise InvalidRequest(
                    f"there is no instance {instance!r}: {chain.name} has {names[0]} to {names[-1]}"
                )
        self.is_over = False
        self._chain = chain
        self._instance = instance
        self._send = send
        self._logs: list[LogReader] = []

    def new_lines(self, *, whole: bool = True) -> Iterator[LogLine]:
        """Look once, and yield the lines since the last look, job by job, ordered by time.

        Callers must take all of them.
        """
        if self.is_over:
            return
        chain = self._chain
        # Asked before reading, so that the lines before the end are read.
        ended = chain.ended(send=self._send)
        for name in chain.names[len(self._logs) :]:
            self._logs.append(LogReader(chain.service, chain.api, name, self._instance))
        for log in self._logs[:-1]:
            # It has a follow-up, so it has ended; its last lines may still arrive.
            yield from log.new_lines(late_s=chain.service.polling.late_s)
        yield from self._logs[-1].new_lines(late_s=chain.late_s() if ended else None, whole=whole)
        self.is_over = ended and all(log.is_over for log in self._logs)

    def metrics(self, line: LogLine, event: Event | None) -> Iterator[Metric]:
        """Yield the metrics in a line, which has ``event``.

        They are the job's own, and those of its metric definitions.
        """
        return patterns_of(self._chain.known().answer).metrics(line.text, event, line.time_s)

    def found(self, line: LogLine) -> Iterator[Metric]:
        """Yield the metrics that the job's definitions find in a line."""
        event = parse(line.text)
        return (metric for metric in self.metrics(line, event) if metric is not event)

    def follow(self, timeout: float | None = None) -> Iterator[LogLine]:
        """Yield the lines as they come, until the job has ended.

        A short outage of the service is tolerated.
        """
        try:
            with self._chain.service.followed():
                yield from self._follow(timeout)
        except KeyboardInterrupt:
            raise interrupted(self._chain.name) from None

    def _follow(self, timeout: float | None) -> Iterator[LogLine]:
        chain = self._chain
        service = self._chain.service
        deadline_s = deadline(timeout)
        errors = TransientErrors(service, chain.name)
        pauses = service.polling.pauses()
        changes = 0
        while True:
            came = False
            try:
                for line in self.new_lines(whole=False):
                    came = True
                    yield line
                errors.reset()
            except ServiceError as error:
                if came:  # the service answered until just now
                    errors.reset()
                errors.raise_unless_transient(error)
            if self.is_over:
                return
            if came:  # a log that has just grown is polled often again
                pauses = service.polling.pauses()
            pause_s = min(next(pauses), FOLLOW_S)
            pause_s = service.polling.between_looks(pause_s, sum(log.streams for log in self._logs))
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise NotDone(
                    f"the job {chain.name} has not ended within {timeout:g} s; it goes on"
                )
            changes = service.connection.wait_for_change(chain.name, changes, pause_s, left_s)


class EventLog:
    def __init__(self, stream: JobStream) -> None:
        self._stream = stream
        # Two readers of one cursor would each get some of the lines.
        self._lock = threading.Lock()
        self._progress: dict[str, Progress] = {}
        self._metrics: list[Metric] = []

    def look(self) -> tuple[dict[str, Progress], list[Metric]]:
        """Return each phase's latest progress and all values of metrics.

        Phases are in the order in which they began.
        """
        with self._lock:
            for line in self._stream.new_lines():
                event = parse(line.text)
                if isinstance(event, Progress):
                    self._progress[event.phase] = event
                self._metrics += self._stream.metrics(line, event)
            return dict(self._progress), list(self._metrics)


def remark(host: str, reason: str) -> str:
    """Return the line with an instance's reason to fail; an event with the same reason follows."""
    return f"raysm: {host} failed: {reason}"


def last_lines(lines: Iterable[LogLine], count: int) -> Iterator[LogLine]:
    return iter(deque(_shown(lines), maxlen=count))


def _shown(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the lines that a display shows one by one."""
    remarks: set[str] = set()
    for line in lines:
        match parse(line.text):
            case Progress() | Metric() | SessionCall() | Digest() | Trial(status="running"):
                continue
            case State(name="failed") as state if remark(state.host, state.detail) in remarks:
                continue
            case None if line.text.startswith("raysm: "):
                remarks.add(line.text.rstrip())
        yield line


def interrupted(name: str) -> KeyboardInterrupt:
    return KeyboardInterrupt(f"the job {name} goes on; raysm.attach({name!r}).stop() stops it")

"""The log lines of a job's instances, from CloudWatch Logs, in the order of their times.

An instance's stream is ``JOB/algo-N-EPOCH``, of Training as of Processing; what else begins so is another's: the agent
of remote debugging writes into ``JOB/algo-N-EPOCH/ssm``. A stream has no end that the service would tell: at its end
``nextForwardToken`` is the token that was sent. A page may be empty and still not be the last.
"""

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raysm.client.service import Service
from raysm.contract.job_api import JobApi
from raysm.errors import ServiceError

__all__ = ["LogLine", "LogReader"]

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
                page brings, and all of it where that is much: for who looks again soon.
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

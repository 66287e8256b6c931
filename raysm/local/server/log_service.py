"""CloudWatch Logs for SageMaker's two log groups, served from the files of the jobs.

moto would lose logs when the server ends; these are kept as long as the job's record. Each stream
is a file, each event a line: the JSON list of milliseconds since the epoch and the message.
Positions are byte offsets, so that a reader that follows a log reads each byte once.
"""

import base64
import heapq
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from raysm.core.protocol.job_api import APIS
from raysm.core.protocol.metric_patterns import MetricPatterns
from raysm.local.job_spec import REGION
from raysm.local.server.moto_services import ACCOUNT, MotoServices, log_filter
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError

Event = tuple[int, int, int, str]
"""Offset of the event, offset of its end, milliseconds since the epoch, message."""

MAX_MESSAGE_BYTES = 262_144 - 26
"""The longest message that CloudWatch takes."""
CHUNK_BYTES = 1 << 18
BATCH = 500
"""Metric values in one call to CloudWatch."""


class LogWriter:
    def __init__(
        self, folder: Path, started_s: float, on_event: Callable[[], None] = lambda: None
    ) -> None:
        """Write below ``folder``.

        Streams are named by the second ``started_s``. Call ``on_event`` for each event.
        """
        self._folder = folder
        self._on_event = on_event
        self._suffix = int(started_s)
        self._files: dict[str, BinaryIO] = {}
        self._lock = threading.Lock()

    def open(self, host: str) -> None:
        with self._lock:
            self._file(host)

    def _file(self, host: str) -> BinaryIO:
        if host not in self._files:
            # Without parents: if the server's home was deleted meanwhile, it must not come back.
            self._folder.mkdir(exist_ok=True)
            # Unbuffered, so that readers see whole lines.
            self._files[host] = (self._folder / f"{host}-{self._suffix}").open("ab", buffering=0)
        return self._files[host]

    def line(self, host: str, message: str) -> None:
        # A message may have bytes that are not UTF-8, such as a file's name.
        encoded = message.encode(errors="replace")
        message = encoded[:MAX_MESSAGE_BYTES].decode(errors="ignore")
        # CloudWatch takes no empty message; SageMaker writes a space for an empty line.
        record = json.dumps([int(time.time() * 1000), message or " "], ensure_ascii=False)
        with self._lock:
            self._file(host).write(record.encode() + b"\n")
        self._on_event()

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()


def read(path: Path, offset: int = 0) -> Iterator[Event]:
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return  # it is being written
            event = _event(offset, line)
            if event is not None:
                yield event
            offset += len(line)


def backwards(path: Path, end: int | None = None) -> Iterator[Event]:
    with path.open("rb") as file:
        begin = file.seek(0, os.SEEK_END) if end is None else end
        rest = b""  # the bytes from ``begin`` to the end of the last line that was not yielded
        while begin > 0:
            size = min(CHUNK_BYTES, begin)
            begin -= size
            file.seek(begin)
            rest = file.read(size) + rest
            # The first line may begin before ``begin``.
            first = rest.find(b"\n") + 1 if begin else 0
            if begin and not first:
                continue
            *lines, torn = rest[first:].split(b"\n")
            stop = begin + len(rest) - len(torn)
            for line in reversed(lines):
                stop -= len(line) + 1
                event = _event(stop, line + b"\n")
                if event is not None:
                    yield event
            rest = rest[:first]


def _event(offset: int, line: bytes) -> Event | None:
    try:
        at_ms, message = json.loads(line)
        return offset, offset + len(line), int(at_ms), str(message)
    except (ValueError, TypeError):
        return None


class MetricScanner:
    def __init__(
        self, moto: MotoServices, record: JobRecord, definitions: Sequence[Mapping[str, str]]
    ) -> None:
        """Look for ``definitions`` (Name, Regex)."""
        self._moto = moto
        self._job = record.name
        self._api = record.api
        self._region = record.region
        self._patterns = MetricPatterns((item["Name"], item["Regex"]) for item in definitions)
        self._lock = threading.Lock()
        self._last: dict[str, Mapping[str, Any]] = {}
        self._unsent: list[Mapping[str, Any]] = []

    def line(self, text: str) -> None:
        for name, value in self._patterns.values(text):
            # CloudWatch refuses the whole call for an infinity or NaN; the job's log has them.
            if math.isfinite(value):
                metric = {"MetricName": name, "Value": value, "Timestamp": time.time()}
                with self._lock:
                    self._last[name] = metric
                    self._unsent.append(metric)

    def last(self) -> tuple[Mapping[str, Any], ...]:
        with self._lock:
            return tuple(self._last.values())

    def send(self) -> None:
        with self._lock:
            # Sent without the lock, so that the job's lines do not wait for moto.
            unsent = self._unsent
            self._unsent = []
        dimensions = [{"Name": self._api.name_key, "Value": self._job}]
        for start in range(0, len(unsent), BATCH):
            data = [
                {**metric, "Dimensions": dimensions} for metric in unsent[start : start + BATCH]
            ]
            cloudwatch = self._moto.client("cloudwatch", self._region)
            # SageMaker's metric namespaces have the names of its log groups.
            cloudwatch.put_metric_data(Namespace=self._api.log_group, MetricData=data)


TARGET = "Logs_20140328."
"""Prefix of the targets of requests to CloudWatch Logs."""

GROUPS = {api.log_group: api for api in APIS}

PAGE_EVENTS = 10_000
PAGE_BYTES = 1 << 20
EVENT_BYTES = 26


class _Stream(NamedTuple):
    name: str
    path: Path
    created_s: float


class LogService:
    def __init__(self, records: Records) -> None:
        self._records = records
        self._operations: dict[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
            "DescribeLogStreams": self._describe,
            "GetLogEvents": self._get,
            "FilterLogEvents": self._filter,
        }

    def answer(
        self, operation: str, request: Mapping[str, Any], region: str = REGION
    ) -> dict[str, Any] | None:
        group = _group(request)
        if operation not in self._operations or group not in GROUPS:
            return None
        return self._operations[operation]({**request, "logGroupName": group}, region)

    def _streams(self, region: str, group: str, prefix: str = "") -> Iterator[_Stream]:
        # A slash ends the job's name, so that only its folder is listed.
        job, slash, _ = prefix.partition("/")
        records = [
            record
            for record in self._records.all(GROUPS[group], region)
            if record.name.startswith(job)
        ]
        if slash:
            records = [record for record in records if record.name == job]
        for record in sorted(records, key=lambda record: record.name):
            for path in self._files(record):
                name = f"{record.name}/{path.name}"
                if name.startswith(prefix):
                    yield _Stream(name, path, record.created_s)

    def _files(self, record: JobRecord) -> list[Path]:
        folder = self._records.folder(record.api, record.name, record.region) / "streams"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def _stream(self, region: str, group: str, name: str) -> _Stream:
        job, _, file = name.partition("/")
        api = GROUPS[group]
        # Without a list of the folder, because a reader asks for each of a thousand streams.
        path = self._records.folder(api, job, region) / "streams" / file
        if file and "/" not in file and path.is_file():
            return _Stream(name, path, self._records.get(api, job, region).created_s)
        raise ApiError("ResourceNotFoundException", "The specified log stream does not exist.")

    def _describe(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        group = request["logGroupName"]
        prefix = request.get("logStreamNamePrefix", "")
        streams = list(self._streams(region, group, prefix))
        if request.get("orderBy") == "LastEventTime":
            streams.sort(key=lambda stream: _last_time(stream.path))
        if request.get("descending"):
            streams.reverse()
        start = _decode(request.get("nextToken"), {"at": 0})["at"]
        end = start + int(request.get("limit") or 50)
        more = {"nextToken": _encode({"at": end})} if end < len(streams) else {}
        # Only those of the page: a description reads two lines of a file.
        described = [_describe(region, group, stream) for stream in streams[start:end]]
        return {"logStreams": described, **more}

    def _get(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        stream = self._stream(region, request["logGroupName"], request["logStreamName"])
        limit = int(request.get("limit") or PAGE_EVENTS)
        token = request.get("nextToken")
        direction = "f" if request.get("startFromHead") else "b"
        start = 0
        end: int | None = None
        if token is not None:
            direction, _, offset = token.partition("/")
            # As on AWS, the token's direction overrides startFromHead.
            if direction not in ("f", "b") or not offset.isdigit():
                raise ApiError("InvalidParameterException", "The specified nextToken is invalid.")
            start = end = int(offset)
        source = read(stream.path, start) if direction == "f" else backwards(stream.path, end)
        page = _page((event for event in source if _within(event, request)), limit)
        if direction == "b":
            # CloudWatch returns the events of such a page in order too.
            page.reverse()
            start = stream.path.stat().st_size if end is None else end
        # At the end the token stays the same, as on AWS.
        first, last = (page[0][0], page[-1][1]) if page else (start, start)
        return {
            "events": [
                {"timestamp": at, "message": text, "ingestionTime": at} for _, _, at, text in page
            ],
            "nextForwardToken": f"f/{last}",
            "nextBackwardToken": f"b/{first}",
        }

    def _filter(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        group = request["logGroupName"]
        names = request.get("logStreamNames")
        if names and request.get("logStreamNamePrefix"):
            raise ApiError(
                "InvalidParameterException",
                "logStreamNamePrefix and logStreamNames exclude each other",
            )
        if names:
            streams = [self._stream(region, group, name) for name in names]
        else:
            streams = list(self._streams(region, group, request.get("logStreamNamePrefix") or ""))
        limit = int(request.get("limit") or PAGE_EVENTS)
        offsets: dict[str, int] = _decode(request.get("nextToken"), {})
        matches = log_filter(request.get("filterPattern") or "")
        # Lazily, so that a page of a long log reads only a part of each file.
        merged = heapq.merge(
            *[_number(number, stream, offsets) for number, stream in enumerate(streams)]
        )
        events: list[dict[str, Any]] = []
        size = 0
        for at, number, offset, end, text in merged:
            name = streams[number].name
            if _within((offset, end, at, text), request) and matches(text):
                size += len(text) + EVENT_BYTES
                if len(events) == limit or size > PAGE_BYTES and events:
                    return {
                        "events": events,
                        "nextToken": _encode(offsets),
                        "searchedLogStreams": [],
                    }
                event = {
                    "logStreamName": name,
                    "timestamp": at,
                    "message": text,
                    "ingestionTime": at,
                }
                events.append(event | {"eventId": f"{at:014d}{number:06d}{offset:016d}"})
            # After the return above, so that an event without room is the first of the next page.
            offsets[name] = end
        return {"events": events, "searchedLogStreams": []}


def _group(request: Mapping[str, Any]) -> str:
    name = request.get("logGroupName") or request.get("logGroupIdentifier") or ""
    # An identifier may be the ARN of DescribeLogGroups.
    return str(name).removesuffix(":*").rpartition(":")[2]


def _number(
    number: int, stream: _Stream, offsets: Mapping[str, int]
) -> Iterator[tuple[int, int, int, int, str]]:
    for offset, end, at, text in read(stream.path, offsets.get(stream.name, 0)):
        yield at, number, offset, end, text


def _within(event: Event, request: Mapping[str, Any]) -> bool:
    start = request.get("startTime")
    end = request.get("endTime")
    return (start is None or event[2] >= start) and (end is None or event[2] <= end)


def _page(events: Iterator[Event], limit: int) -> list[Event]:
    page: list[Event] = []
    size = 0
    for event in events:
        size += len(event[3]) + EVENT_BYTES
        # At least one event, because an unchanged token means the end.
        if len(page) == limit or (size > PAGE_BYTES and page):
            break
        page.append(event)
    return page


def _last_time(path: Path) -> int:
    """Return the time of the last event, 0 if there is none."""
    last = next(backwards(path), None)
    return 0 if last is None else last[2]


def _describe(region: str, group: str, stream: _Stream) -> dict[str, Any]:
    created = int(stream.created_s * 1000)
    described: dict[str, Any] = {
        "logStreamName": stream.name,
        "creationTime": created,
        "arn": f"arn:aws:logs:{region}:{ACCOUNT}:log-group:{group}:log-stream:{stream.name}",
        # CloudWatch reports 0 since June 2019.
        "storedBytes": 0,
    }
    first = next(read(stream.path), None)
    last = next(backwards(stream.path), None)
    if first is not None and last is not None:
        described |= {
            "firstEventTimestamp": first[2],
            "lastEventTimestamp": last[2],
            "lastIngestionTime": last[2],
        }
    return described


def _encode(position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _decode(token: str | None, default: Any) -> Any:
    if token is None:
        return default
    try:
        return json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        raise ApiError("InvalidParameterException", "The specified nextToken is invalid.") from None

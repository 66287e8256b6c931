"""The logs of a job as files, kept as long as the job's record, and the metrics in its lines.

Each stream is a file, each event a line: the JSON list of milliseconds since the epoch and the
message. Positions are byte offsets, so that a reader that follows a log reads each byte once.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from raysm.core.protocol.metric_patterns import MetricPatterns
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.records import JobRecord

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
        """Write below ``folder``; streams are named by the second ``started_s``; call ``on_event`` for each event."""
        self._folder, self._on_event = folder, on_event
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
        self._job, self._api, self._region = record.name, record.api, record.region
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
            unsent, self._unsent = self._unsent, []
        dimensions = [{"Name": self._api.name_key, "Value": self._job}]
        for start in range(0, len(unsent), BATCH):
            data = [
                {**metric, "Dimensions": dimensions} for metric in unsent[start : start + BATCH]
            ]
            cloudwatch = self._moto.client("cloudwatch", self._region)
            # SageMaker's metric namespaces have the names of its log groups.
            cloudwatch.put_metric_data(Namespace=self._api.log_group, MetricData=data)

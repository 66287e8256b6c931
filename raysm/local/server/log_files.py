"""The logs of a job as files: one for each stream, one line for each event, kept as long as the job's record.

A line is the JSON list of milliseconds since the epoch and the message. Places in a file are told by their byte
offsets, so that whoever follows a log reads each byte once.
"""

import heapq
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import BinaryIO

__all__ = ["Event", "LateLines", "LogWriter", "backwards", "read", "stream_name"]

Event = tuple[int, int, int, str]
"""Offset of the event, offset behind it, milliseconds since the epoch, message."""

MOST_BYTES = 262_144 - 26
"""A longer message CloudWatch would not take."""

AGENT = "~ssm"
"""How the file of a stream ends that the agent of remote debugging writes; its name has a slash there."""

CHUNK_BYTES = 1 << 18
"""Read at a time from the end on."""


class LogWriter:
    """Writes the streams of one attempt of a job, ``algo-1-EPOCH`` …; may be called from any thread."""

    def __init__(self, folder: Path, started_s: float, on_event: Callable[[], None] = lambda: None) -> None:
        """Write below ``folder``; streams are named by the second ``started_s``; ``on_event`` hears of each event."""
        self._folder, self._on_event = folder, on_event
        self._suffix = int(started_s)
        self._files: dict[str, BinaryIO] = {}
        self._lock = threading.Lock()

    def open(self, host: str) -> None:
        """Make the stream of ``host``, empty: it is there from the start."""
        with self._lock:
            self._file(host)

    def _file(self, host: str) -> BinaryIO:
        if host not in self._files:
            # Not what is above it: that is the job's, whose home may have been deleted.
            self._folder.mkdir(exist_ok=True)
            # Unbuffered: readers see whole lines, since each is written by one call.
            name = f"{host.removesuffix(AGENT)}-{self._suffix}{AGENT if host.endswith(AGENT) else ''}"
            self._files[host] = (self._folder / name).open("ab", buffering=0)
        return self._files[host]

    def agent_line(self, host: str, message: str) -> None:
        """Write one event of the agent of remote debugging."""
        self.line(f"{host}{AGENT}", message)

    def line(self, host: str, message: str, at_s: float | None = None) -> None:
        """Write one event; None is of now."""
        # A file of the user's need not have a name in UTF-8: what it is called is no reason to end a job.
        encoded = message.encode(errors="replace")
        message = encoded[:MOST_BYTES].decode(errors="ignore")
        # An event without a message CloudWatch does not take; SageMaker's empty lines are a blank.
        at_ms = int((time.time() if at_s is None else at_s) * 1000)
        record = json.dumps([at_ms, message or " "], ensure_ascii=False)
        with self._lock:
            self._file(host).write(record.encode() + b"\n")
        # Behind the write: whoever is woken reads at once.
        self._on_event()

    def close(self) -> None:
        """Close the files; harmless when repeated."""
        with self._lock:
            while self._files:
                self._files.popitem()[1].close()


def stream_name(job: str, path: Path) -> str:
    """Return what CloudWatch calls the stream whose events lie in ``path``."""
    return f"{job}/{path.name.removesuffix(AGENT)}" + ("/ssm" if path.name.endswith(AGENT) else "")


def read(path: Path, offset: int = 0) -> Iterator[Event]:
    """Yield the events from ``offset`` on."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return  # it is being written
            event = _event(offset, line)
            if event is not None:
                yield event
            offset += len(line)


def backwards(path: Path, behind: int | None = None) -> Iterator[Event]:
    """Yield the events that end at or before the offset ``behind`` (None is the end), the last one first."""
    with path.open("rb") as file:
        begin = file.seek(0, os.SEEK_END) if behind is None else behind
        rest = b""  # what follows ``begin`` and has not been yielded, up to the end of its last whole line
        while begin > 0:
            size = min(CHUNK_BYTES, begin)
            begin -= size
            file.seek(begin)
            rest = file.read(size) + rest
            # The first line of what was read may begin before it, unless the file does here.
            first = rest.find(b"\n") + 1 if begin else 0
            if begin and not first:
                continue
            *lines, torn = rest[first:].split(b"\n")
            end = begin + len(rest) - len(torn)
            for line in reversed(lines):
                end -= len(line) + 1
                event = _event(end, line + b"\n")
                if event is not None:
                    yield event
            rest = rest[:first]


def _event(offset: int, line: bytes) -> Event | None:
    """Return the event of a line; None of one that a full disk, or a server that was killed, has left torn."""
    try:
        at_ms, message = json.loads(line)
        return offset, offset + len(line), int(at_ms), str(message)
    except (ValueError, TypeError):
        return None


class LateLines:
    """Hands lines over to a writer late, those of each instance by a time of its own; may be called from any thread."""

    def __init__(self, writer: LogWriter, late_s: float, chance: Random) -> None:
        """Be late by at most ``late_s``; closes ``writer`` once it has all lines."""
        self._writer = writer
        self._late_s = late_s
        self._chance = chance
        self._delays_s: dict[str, float] = {}
        self._waiting: list[tuple[float, int, float, str, str]] = []
        """When each is due, its number, when it was written, by whom, and what."""
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()
        # No daemon: a server that ends has the lines of its last jobs written, as CloudWatch would.
        threading.Thread(target=self._run, name="late lines").start()

    def line(self, host: str, message: str) -> None:
        """Take one line, of now."""
        now_s = time.time()
        with self._changed:
            if host not in self._delays_s:
                self._delays_s[host] = self._chance.uniform(0, self._late_s)
            # Lines that are due at the same moment come in the order in which they were written.
            self._count += 1
            heapq.heappush(self._waiting, (now_s + self._delays_s[host], self._count, now_s, host, message))
            self._changed.notify()

    def close(self) -> None:
        """Take no more; what has been taken still comes. Harmless when repeated."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and self._closed:
                    break
                left_s = self._waiting[0][0] - time.time() if self._waiting else None
                if left_s is None or left_s > 0:
                    self._changed.wait(left_s)
                    continue
                _, _, at_s, host, message = heapq.heappop(self._waiting)
            self._writer.line(host, message, at_s)
        self._writer.close()

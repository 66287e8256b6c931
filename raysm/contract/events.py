"""Events: what a job says of itself while it runs, one JSON object on one line of its log.

The log is the one stream that leaves an instance on every kind of service. ``parse`` skips all lines that are not
events. ``ProgressLines`` thins out progress bars in the same log.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from raysm.contract.store import put, read_json
from raysm.errors import InvalidRequest
from raysm.request.codec import from_json, to_json

# The number is in the mark, so that lines of a later version are passed over and not misread.
MARK = '{"raysm": 1, '
"""How every event's line begins; the number is the format's version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The job reached a state."""

    kind: ClassVar[str] = "state"

    name: str
    """``joined`` (one more instance), ``formed``, ``dashboard`` (it is started when it is first asked), ``running``,
    ``gathering``, ``lost`` (an instance), ``rejoined``, ``stopping``, ``done``, ``failed``; an unknown one is a state
    too."""
    host: str = ""
    """The instance that it is about."""
    detail: str = ""
    """For people."""
    count: int | None = None
    """Instances joined so far, for ``joined`` and ``formed``."""
    total: int | None = None
    """Instances asked for, for ``joined`` and ``formed``."""
    address: str | None = None
    """The dashboard's URL, for ``dashboard``."""
    time_s: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """So much of a phase is done."""

    kind: ClassVar[str] = "progress"

    phase: str
    """``similarity``, ``gather`` …; each has a bar of its own."""
    done: int
    """In ``unit``."""
    total: int
    """In ``unit``."""
    unit: str = "blocks"
    """``rows``, ``blocks``, ``bytes`` …"""
    time_s: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One value of a metric."""

    kind: ClassVar[str] = "metric"

    name: str
    """As the user or the workload names it, its unit at the end: ``peak_memory_bytes``."""
    value: float
    """Finite."""
    host: str = ""
    """The instance that it is about; empty for the job."""
    step: int | None = None
    """Training step, where there is one."""
    time_s: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """How a trial of a sweep is."""

    kind: ClassVar[str] = "trial"

    number: int
    """From 0, in the order in which they began."""
    status: str
    """``running``, ``done``, ``stopped`` (ended early), ``failed``; an unknown one is a status too."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What it tries."""
    value: float | None = None
    """The metric that counts, as reported last; None where it was not, or is not finite."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What it reported last, by name; finite."""
    reports: int = 0
    """How often it reported; what it repeats from a checkpoint counts once."""
    reason: str = ""
    """Why it failed."""
    host: str = ""
    """The instance of its first worker."""
    seconds: float = 0.0
    """How long it took."""
    time_s: float = field(default_factory=time.time)
    """Seconds since the epoch."""


Event: TypeAlias = State | Progress | Metric | Trial


@dataclass(frozen=True, slots=True)
class _Envelope:
    """Gives ``from_json`` a field that admits every event."""

    event: Event


def line(event: Event) -> str:
    """Return the event as one line, without its newline."""
    # Not by one dumps: the mark has to stand at the begin, byte for byte, for ``parse`` to find it.
    return MARK + json.dumps(to_json(event))[1:]


def parse(text: str) -> Event | None:
    """Return the event that ``text``, one line of a log, holds; None if it holds none."""
    # Anywhere in the line: a log may have put a host or a time before what was written.
    start = text.find(MARK)
    if start < 0:
        return None
    try:
        data = json.loads(text[start:])
        data.pop("raysm")
        return from_json(_Envelope, {"event": data}, "event").event
    except (ValueError, RecursionError, InvalidRequest):  # user code may print anything, this mark too
        return None


TRIALS = "trials.json"
"""Name of the file, in the result's folder."""

TABLE = "trials.parquet"
"""Name of the same as a table: a column for each parameter and metric."""

BEST = "best"
"""Folder of what the best trial left: its last checkpoint, or what it wrote into $SM_MODEL_DIR."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trials:
    """All trials of a sweep."""

    metric: str
    """What counts."""
    mode: Literal["min", "max"]
    """Whether less of it is better, or more."""
    trials: tuple[Trial, ...]
    """By their numbers."""
    best: int | None
    """Number of the best one; None where none has a value."""
    notes: tuple[str, ...] = ()
    """What to know of how it went: which wish the cluster could not fulfil, what the time was too short for."""

    def write(self, folder: Path) -> Path:
        """Write it into ``folder``."""
        path = folder / TRIALS
        put(path, json.dumps(to_json(self), indent=1) + "\n")
        return path

    @staticmethod
    def read(folder: Path) -> "Trials":
        """Read what ``write`` wrote."""
        return from_json(Trials, read_json(folder / TRIALS), TRIALS)


def own_trials(folder: Path) -> Trials | None:
    """Return the trials that a sweep left in a folder; None if there are none, or a user's own file of that name."""
    try:
        return Trials.read(folder)
    except (OSError, ValueError):
        return None


def best_of(trials: Sequence[Trial], mode: str) -> Trial | None:
    """Return the trial whose last value is best, of equal ones the first; None where none has a value.

    Trials that were ended early count: what they had reached is a result like others.
    """
    having = [trial for trial in trials if trial.value is not None and trial.status in ("done", "stopped")]
    sign = 1 if mode == "min" else -1
    return min(having, key=lambda trial: (sign * (trial.value or 0.0), trial.number), default=None)


INTERVAL_S = 1.0
MAX_LINE_BYTES = 1 << 16
"""A longer line is cut, so that output without line ends does not fill the memory."""
LINE = re.compile(rb"([^\r\n]*)(\r?\n|\r(?!\n))")


class ProgressLines:
    r"""Turns output with carriage returns into whole lines that end in ``\n``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown_s = -INTERVAL_S
        self._held = b""
        self._frame = b""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that ``data`` completes; the beginning of a line is held until its end comes."""
        data = self._held + data
        if b"\r" not in data and not self._frame:
            end = data.rfind(b"\n") + 1
            lines, self._held = data[:end], data[end:]
        else:
            lines = b"".join(self._lines(data))
        while len(self._held) > MAX_LINE_BYTES:
            lines += self._held[:MAX_LINE_BYTES] + b"\n"
            self._held = self._held[MAX_LINE_BYTES:]
        return lines

    def rest(self) -> bytes:
        """Return the last line, once nothing more comes; it has no line end."""
        last = self._held.rstrip(b"\r") or self._frame
        self._held = self._frame = b""
        return last

    def _lines(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        position = 0
        for match in LINE.finditer(data):
            text, end = match.groups()
            # What follows a last \r decides whether it belongs to a \r\n.
            if end == b"\r" and match.end() == len(data):
                break
            position = match.end()
            if end != b"\r":
                # A line end alone closes the bar, whose last state is then what counts.
                lines.append((text or self._frame) + b"\n")
                self._frame = b""
            elif text.strip():
                self._frame = text
                now_s = self._clock()
                if now_s - self._shown_s >= INTERVAL_S:
                    lines.append(text + b"\n")
                    self._shown_s, self._frame = now_s, b""
        self._held = data[position:]
        return lines

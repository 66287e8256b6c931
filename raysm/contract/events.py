"""What a job says of itself while it runs: one JSON object on one line of its log.

They travel in the log because that is the one stream that leaves an instance on every kind of service. What flows in
are values, what flows out are lines; ``parse`` passes over every line that is none of ours.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json, to_json

__all__ = ["MARK", "Event", "Metric", "Progress", "State", "Trial", "line", "parse"]

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
